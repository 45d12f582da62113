"""`bench decode`: the engine against the plain loop, same checkpoint, images, policy and tokens; some crops one by one,
and a page of crops at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from mineru_diffusion.benchmarks.baseline import PlainResult, decode_plainly
from mineru_diffusion.benchmarks.common import Progress, Turns, race, save, table, text_crops
from mineru_diffusion.benchmarks.networks import parameters, random_checkpoint
from mineru_diffusion.engine.devices import choose_device
from mineru_diffusion.engine.local import LocalEngine
from mineru_diffusion.engine.requests import stop_ids_of
from mineru_diffusion.engine.types import DecodingParams, Request, Result
from mineru_diffusion.model.checkpoint import Checkpoint, load_checkpoint

SINGLES = 8
"""Crops that are read one by one."""


def decode_crops_plainly(
    checkpoint: Checkpoint, crops: Sequence[Image.Image], params: DecodingParams
) -> list[PlainResult]:
    """The plain loop over some crops, one after the other, from pixels to tokens."""
    profile, processor, model = checkpoint.profile, checkpoint.processor, checkpoint.model
    stops = stop_ids_of(model) if params.stop_ids is None else frozenset(params.stop_ids)
    results = []
    for crop in crops:
        text = processor.prompt(profile.prompts["text"], images=1, system=profile.system_prompt)
        inputs = processor(images=[crop], text=[text], return_tensors="pt")
        results.append(
            decode_plainly(
                model,
                inputs["input_ids"].to(model.device),
                inputs["pixel_values"].to(model.device),
                inputs["image_grid_thw"],
                block_length=profile.block_length,
                threshold=profile.threshold,
                max_tokens=params.max_tokens or profile.max_tokens,
                stop_ids=stops,
            )
        )
    return results


def _in_turn(engine: LocalEngine, groups: Sequence[Sequence[Request]]) -> list[Result]:
    """Each group at once, one group after the other."""
    return [result for group in groups for result in engine.generate(group)]


def _rows(
    name: str, checkpoint: Checkpoint, crops: Sequence[Image.Image], params: DecodingParams, rounds: int, turns: Turns
) -> list[dict[str, Any]]:
    rows = []
    # The plain loop cannot leave out positions behind a stop; the same work is measured as well as what users get.
    exact = replace(params, policy="threshold", skip_after_stop=False, repetition_guard=False)
    # A single crop is easy or hard by accident: several are read, each by itself.
    singles = [[crop] for crop in crops[:SINGLES]]
    for name_of_size, groups in ((f"{len(singles)} x 1", singles), (str(len(crops)), [list(crops)])):
        some = [crop for group in groups for crop in group]
        size = len(some)
        with LocalEngine(checkpoint) as engine:
            same_work = [[Request(crop, params=exact) for crop in group] for group in groups]
            shipped = [[Request(crop, params=params) for crop in group] for group in groups]
            plain = decode_crops_plainly(checkpoint, some, exact)
            turns.over()
            runs = {"same work": _in_turn(engine, same_work), "as it ships": _in_turn(engine, shipped)}
            turns.over()
            times = race(
                {
                    "plain": partial(decode_crops_plainly, checkpoint, some, exact),
                    "same work": partial(_in_turn, engine, same_work),
                    "as it ships": partial(_in_turn, engine, shipped),
                },
                rounds,
                turns,
                warm=False,
            )
        tokens = sum(len(result.tokens) for result in plain)
        for ours, results in runs.items():
            same = sum(list(a.tokens) == b.tokens for a, b in zip(results, plain, strict=True))
            rows.append(
                {
                    "network": name,
                    "crops": name_of_size,
                    "ours": ours,
                    "tokens": tokens,
                    "same tokens": f"{same}/{size}",
                    "plain passes": sum(result.passes for result in plain),
                    "our passes": sum(result.nfe for result in results),
                    "plain ms/crop": 1000 * times["plain"].cpu / size,
                    "ours ms/crop": 1000 * times[ours].cpu / size,
                    "ours tokens/s": tokens / times[ours].cpu,
                    "ratio": times["plain"].cpu / times[ours].cpu,
                    "ratio (wall)": times["plain"].wall / times[ours].wall,
                }
            )
    return rows


def bench_decode(
    model: Path | None = None,
    *,
    crops: int = 32,
    rounds: int = 5,
    middle: bool = True,
    device: str = "auto",
    out: Path | None = None,
    progress: Progress | None = None,
) -> str:
    """Run it.

    Args:
        model: a checkpoint that reads lines; None: the packaged one.
        crops: of the page.
        rounds: turns of each contestant.
        middle: also a random network of 100 million parameters.
        device: where to run.
        out: JSON file to write.
        progress: called with how many turns are over and how many there are.
    """
    from mineru_diffusion.assets import packaged_checkpoint

    where = choose_device(device)
    checkpoint = load_checkpoint(model or packaged_checkpoint(), device=where, dtype=torch.float32)
    factor = checkpoint.processor.image_processor.factor
    images = text_crops(checkpoint.profile, factor, crops).images[:crops]
    fewer = max(1, rounds // 3)
    turns = Turns(2 * (3 * rounds + 2) + (2 * (3 * fewer + 2) if middle else 0), progress)
    rows = _rows(f"{parameters(checkpoint) / 1e6:.1f} M", checkpoint, images, DecodingParams(), rounds, turns)
    if middle:
        large = random_checkpoint(device=where)
        fixed = DecodingParams(max_tokens=32, stop_ids=(), repetition_guard=False)
        rows += _rows(f"{parameters(large) / 1e6:.0f} M random", large, images, fixed, fewer, turns)
    save(out, "decode", rows, crops=crops, rounds=rounds)
    return table(rows)
