"""`bench roofline`: floating-point operations per second of decoding, prefill and the eye, as shares of what this
machine reaches on plain matrix products, by batch size.

Operations counted: 2 per weight of a matrix and position, and 4 S D H per position and layer for attention to S
positions with H heads of width D; norms, activations and copies count as nothing.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from mineru_diffusion.benchmarks.common import Progress, Turns, save, table
from mineru_diffusion.benchmarks.networks import parameters, random_checkpoint
from mineru_diffusion.engine.devices import choose_device
from mineru_diffusion.engine.images import GROUP_PATCHES
from mineru_diffusion.engine.loop import DecodingLoop
from mineru_diffusion.engine.rows import Run
from mineru_diffusion.model.checkpoint import Checkpoint, load_checkpoint


def seconds_of(run: Callable[[], object], rounds: int) -> float:
    """Median processor time (on CUDA: wall time) of a call, after one that does not count."""
    run()
    clock = time.perf_counter if torch.cuda.is_available() else time.process_time
    times = []
    for _ in range(rounds):
        started = clock()
        run()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        times.append(clock() - started)
    return statistics.median(times)


def matmul_peak(dtype: torch.dtype, device: torch.device, rounds: int = 5) -> float:
    """FLOP/s of the best of some square products."""
    best = 0.0
    for size in (512, 1024) if device.type == "cpu" else (4096, 8192):
        left = torch.randn(size, size, dtype=dtype, device=device)
        right = torch.randn(size, size, dtype=dtype, device=device)
        best = max(best, 2 * size**3 / seconds_of(partial(torch.matmul, left, right), rounds))
    return best


def matrix_weights(module: nn.Module) -> int:
    """Weights of all linear layers."""
    return sum(m.weight.numel() for m in module.modules() if isinstance(m, nn.Linear))


class DecoderPass:
    """A pass over `sequences` sequences with `context` positions in the cache and `fresh` new ones each, planned and
    run as the engine does it (attention kernel, graphs), as often as it is called.

    Args:
        checkpoint: network.
        asks: compute the last layer to its end, and logits, at all new positions.
    """

    def __init__(self, checkpoint: Checkpoint, sequences: int, context: int, fresh: int, *, asks: bool) -> None:
        model, block = checkpoint.model, checkpoint.profile.block_length
        pages = -(-(context + fresh) // block)
        self.loop = DecodingLoop(model, block_length=block, max_rows=sequences, max_pages=sequences * pages)
        cache = self.loop.cache
        slots = [cache.slots(cache.allocate(pages)) for _ in range(sequences)]
        self.runs = [Run(s, context, context + fresh, block, 0) for s in slots]
        self.asked = [(context, context + fresh) if asks else None for _ in self.runs]
        weight, width = model.language_model.lm_head.weight, model.config.text_config.hidden_size
        self.embeds = torch.randn(sequences * fresh, width, device=weight.device, dtype=weight.dtype)
        text = model.config.text_config
        weights = matrix_weights(model.language_model.model.layers)
        attention = 4 * (context + fresh / 2) * text.num_attention_heads * text.head_dim * text.num_hidden_layers
        head = model.language_model.lm_head.weight.numel() if asks else 0
        self.operations = sequences * fresh * (2 * (weights + head) + attention)

    @torch.inference_mode()
    def __call__(self) -> None:
        hidden = self.loop.passes.plan(self.embeds.clone(), self.runs, self.asked, None)()
        if hidden is not None:
            self.loop.model.language_model.lm_head(hidden)


class VisionCalls:
    """The vision tower on `images` images of 4 x 28 patches, in calls as large as the engine's, as often as it is
    called.

    Args:
        checkpoint: network.
    """

    def __init__(self, checkpoint: Checkpoint, images: int) -> None:
        self.model = checkpoint.model
        vision, weight = self.model.config.vision_config, self.model.language_model.lm_head.weight
        grid = (1, 4, 28)
        patches = math.prod(grid)
        together = max(1, GROUP_PATCHES[weight.device.type] // patches)
        self.groups = [[grid] * min(together, images - first) for first in range(0, images, together)]
        width = vision.in_channels * vision.temporal_patch_size * vision.patch_size**2
        self.pixels = torch.randn(min(together, images) * patches, width, device=weight.device, dtype=weight.dtype)
        self.patches = patches
        weights = matrix_weights(self.model.vision_model) + width * vision.embed_dim
        merged = matrix_weights(self.model.vision_abstractor) / vision.spatial_merge_size**2
        attention = 4 * patches * vision.embed_dim * vision.depth
        self.operations = images * patches * (2 * (weights + merged) + attention)

    @torch.inference_mode()
    def __call__(self) -> None:
        for group in self.groups:
            self.model.encode_images(self.pixels[: len(group) * self.patches], group)


def bench_roofline(
    model: Path | None = None,
    *,
    batches: tuple[int, ...] = (1, 8, 32),
    rounds: int = 5,
    device: str = "auto",
    out: Path | None = None,
    progress: Progress | None = None,
) -> str:
    """Run it.

    Args:
        model: a checkpoint; None: a random network of 100 million parameters.
        batches: sequences of a pass.
        rounds: timed runs of each.
        device: where to run.
        out: JSON file to write.
        progress: called with how many turns are over and how many there are.
    """
    where = choose_device(device)
    checkpoint = (
        random_checkpoint(device=where) if model is None else load_checkpoint(model, device=where, dtype=torch.float32)
    )
    weight = checkpoint.model.language_model.lm_head.weight
    block, context = checkpoint.profile.block_length, 64
    rows: list[dict[str, Any]] = []
    turns = Turns(3 * len(batches), progress)

    def add(what: str, batch: int, operations: float, run: Callable[[], object]) -> None:
        # Beside each measurement, so that a busy machine slows both.
        peak = matmul_peak(weight.dtype, weight.device)
        seconds = seconds_of(run, rounds)
        share = operations / seconds / peak
        rows.append(
            {"what": what, "batch": batch, "GFLOP": operations / 1e9, "ms": 1000 * seconds}
            | {"GFLOP/s": operations / seconds / 1e9, "peak GFLOP/s": peak / 1e9, "share of peak %": 100 * share}
        )
        turns.over()

    for batch in batches:
        step = DecoderPass(checkpoint, batch, context, block, asks=True)
        add("decode step", batch, step.operations, step)
    for batch in batches:
        prompts = DecoderPass(checkpoint, batch, 0, context, asks=False)
        add("prefill", batch, prompts.operations, prompts)
    for batch in batches:
        eye = VisionCalls(checkpoint, batch)
        add("vision", batch, eye.operations, eye)
    save(out, "roofline", rows, parameters=parameters(checkpoint))
    return table(rows)
