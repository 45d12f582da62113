"""`bench ar`: block diffusion against its autoregressive twin (same network, same data, causal mask), both through the
engine, at several batch sizes. Accuracy beside speed: a faster reader that reads worse proves nothing."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from mineru_diffusion.assets import packaged_twin
from mineru_diffusion.benchmarks.common import Progress, Turns, race, save, table, text_crops
from mineru_diffusion.engine.local import load_engine
from mineru_diffusion.engine.types import DecodingParams, Request
from mineru_diffusion.errors import UsageError
from mineru_diffusion.evaluation.metrics import character_error_rate

PAGE = 32
"""Crops that count as a page."""


def bench_ar(
    model: Path | None = None,
    twin: Path | None = None,
    *,
    batches: tuple[int, ...] = (1, 8, 32),
    crops: int = PAGE,
    rounds: int = 3,
    policy: str | None = None,
    device: str = "auto",
    out: Path | None = None,
    progress: Progress | None = None,
) -> str:
    """Run it.

    Args:
        model: the diffusion checkpoint; None: the packaged one.
        twin: the autoregressive checkpoint; None: the packaged one.
        batches: sequences that run at a time.
        crops: read by each, whatever the batch.
        rounds: turns of each contestant.
        policy: of the diffusion checkpoint; None: its own.
        device: where to run.
        out: JSON file to write.
        progress: called with how many turns are over and how many there are.

    Raises:
        UsageError: no twin is given and none is packaged, or it is none.
    """
    twin = twin or packaged_twin()
    if twin is None:
        raise UsageError("bench ar needs --twin: the folder of a checkpoint trained with objective: autoregressive")
    params = DecodingParams(policy=policy)  # type: ignore[arg-type]
    rows: list[dict[str, Any]] = []
    turns = Turns(len(batches) * 2 * (rounds + 1), progress)
    for batch in batches:
        with (
            load_engine(model, device=device, max_rows=batch) as ours,
            load_engine(twin, device=device, max_rows=batch) as other,
        ):
            if other.profile.objective != "autoregressive":
                raise UsageError(f"{twin} was not trained with objective: autoregressive")
            engines = {"diffusion": ours, "autoregressive": other}
            page = text_crops(ours.profile, ours.image_factor, crops)
            requests = [Request(image, params=params) for image in page.images]
            times = race({name: partial(engine.generate, requests) for name, engine in engines.items()}, rounds, turns)
            for name, engine in engines.items():
                results = engine.generate(requests)
                tokens = sum(len(result.tokens) for result in results)
                seconds = times[name].cpu
                rows.append(
                    {
                        "reader": name,
                        "batch": batch,
                        "tokens/s": tokens / seconds,
                        "pages/s": len(requests) / PAGE / seconds,
                        "tokens/pass": tokens / max(1, sum(result.nfe for result in results)),
                        "CER %": 100 * character_error_rate(page.lines([r.text for r in results]), page.truths),
                        "pages/s : autoregressive": times["autoregressive"].cpu / seconds,
                    }
                )
    save(out, "ar", rows, page=PAGE, rounds=rounds)
    return table(rows)
