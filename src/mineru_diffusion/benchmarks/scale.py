"""`bench scale`: what sequence length, the number of requests, and a long run cost."""

from __future__ import annotations

import resource
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch

from mineru_diffusion.benchmarks.common import Progress, Turns, race, save, table, text_crops
from mineru_diffusion.benchmarks.roofline import DecoderPass, seconds_of
from mineru_diffusion.engine.devices import choose_device
from mineru_diffusion.engine.local import load_engine
from mineru_diffusion.engine.types import Request
from mineru_diffusion.model.checkpoint import load_checkpoint


def peak_mebibytes() -> float:
    """Most memory that this process has had so far."""
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def bench_scale(
    model: Path | None = None,
    *,
    lengths: tuple[int, ...] = (64, 256, 1024, 4096),
    requests: tuple[int, ...] = (1, 8, 32, 128),
    pages: int = 500,
    rounds: int = 3,
    device: str = "auto",
    out: Path | None = None,
    progress: Progress | None = None,
) -> str:
    """Run it.

    Args:
        model: a checkpoint that reads lines; None: the packaged one.
        lengths: positions in the cache.
        requests: crops that are asked for at once.
        pages: of four crops each, one after the other.
        rounds: timed runs of each.
        device: where to run.
        out: JSON file to write.
        progress: called with how many turns are over and how many there are.
    """
    from mineru_diffusion.assets import packaged_checkpoint

    checkpoint = load_checkpoint(model or packaged_checkpoint(), device=choose_device(device), dtype=torch.float32)
    block = checkpoint.profile.block_length
    by_length: list[dict[str, Any]] = []
    rounds_of = {number: rounds if number > 1 else 5 * rounds for number in requests}
    turns = Turns(len(lengths) + sum(rounds_of.values()) + len(requests) + pages, progress)
    for length in lengths:
        step = DecoderPass(checkpoint, 1, length, block, asks=True)
        prompt = DecoderPass(checkpoint, 1, 0, length, asks=False)
        seconds = seconds_of(prompt, rounds)
        by_length.append(
            {"positions": length, "step ms": 1000 * seconds_of(step, 3 * rounds), "prefill ms": 1000 * seconds}
            | {"prefill us/position": 1e6 * seconds / length}
        )
        turns.over()
    by_number: list[dict[str, Any]] = []
    by_page: list[dict[str, Any]] = []
    with load_engine(model, device=device) as engine:
        images = text_crops(engine.profile, engine.image_factor, max(*requests, 64)).images
        for number in requests:
            some = [Request(image) for image in images[:number]]
            before = engine.stats()
            times = race({"ours": partial(engine.generate, some)}, rounds_of[number], turns)
            done = engine.stats().since(before)
            by_number.append(
                {"requests": number, "ms a request": 1000 * times["ours"].cpu / number}
                | {"rows a pass": done.rows_per_pass, "tokens a pass": done.tokens_per_pass}
            )
        marks = {max(1, pages * part // 10) for part in (1, 5, 10)}
        for page in range(1, pages + 1):
            first = 4 * page % (len(images) - 4)
            engine.generate([Request(image) for image in images[first : first + 4]])
            turns.over()
            if page in marks:
                by_page.append({"pages": page, "peak memory MiB": peak_mebibytes()})
    growth = by_page[-1]["peak memory MiB"] / by_page[0]["peak memory MiB"] - 1
    save(out, "scale", [*by_length, *by_number, *by_page], memory_growth=growth)
    grown = f"memory grew by {100 * growth:.1f} % from page {by_page[0]['pages']} to page {pages}"
    return "\n\n".join([table(by_length), table(by_number), table(by_page), grown])
