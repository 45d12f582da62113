"""The batches of a run: data sources mixed by their shares, and moved to the device.

Which source a batch comes from is drawn from the seed and the batch's number, so a run resumes to the same batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mineru_diffusion.model.images import ImageProcessor
from mineru_diffusion.training.config import LINES, TrainConfig
from mineru_diffusion.training.data import LineBatch, LineChunks, batches
from mineru_diffusion.training.network import Parts
from mineru_diffusion.training.objective import Inputs, PackedInputs
from mineru_diffusion.training.shards import PackedBatch, SampleEncoder, ShardChunks
from mineru_diffusion.training.state import Progress
from mineru_diffusion.training.streams import Document


@dataclass(frozen=True)
class Drawn:
    """A batch, the name that its figures carry in the log ("" for the only source and for lines), and its samples."""

    batch: LineBatch | PackedBatch
    label: str
    samples: int


class Feed:
    """The run's batches, from where its progress says.

    Args:
        config: of the run.
        parts: network (for sizes), processor and profile.
        progress: is moved on with every batch that is taken.
    """

    def __init__(self, config: TrainConfig, parts: Parts, progress: Progress) -> None:
        self.config, self.parts, self.progress = config, parts, progress
        shares = config.sources
        self.names = list(shares)
        self.ends = np.cumsum(list(shares.values())) / sum(shares.values())
        self._open: dict[str, Iterator[tuple[int, int, Any]]] = {}

    def take(self) -> Drawn:
        """The next batch."""
        progress = self.progress
        name = self.names[0]
        if len(self.names) > 1:
            draw = np.random.default_rng([self.config.seed, progress.batches]).random()
            name = self.names[int(np.searchsorted(self.ends[:-1], draw, side="right"))]
        if name not in self._open:
            self._open[name] = self._start(name)
        chunk, number, batch = next(self._open[name])
        progress.positions[name] = (chunk, number + 1)
        progress.batches += 1
        label = "" if name == LINES or len(self.names) == 1 else Path(name).stem
        return Drawn(batch, label, len(batch.texts if isinstance(batch, LineBatch) else batch.samples))

    def lengthen(self) -> None:
        """Begin a new chunk of lines, of the length that the progress has now."""
        chunk, _ = self.progress.positions.get(LINES, (0, 0))
        self.progress.positions[LINES] = (chunk + 1, 0)
        self._open.pop(LINES, None)

    def _start(self, name: str) -> Iterator[tuple[int, int, Any]]:
        config, progress, parts = self.config, self.progress, self.parts
        chunk, skip = progress.positions.get(name, (0, 0))
        if name != LINES:
            shards = ShardChunks(
                name,
                SampleEncoder(parts.processor, parts.profile, config.block_length),
                seed=config.seed,
                start=chunk,
                chunk=config.data.chunk,
                budget=config.batch_positions,
                draws=config.draws,
                max_visual=config.data.max_visual,
            )
            return batches(shards, config.data.workers, skip)
        lines, images = config.lines, parts.processor.image_processor
        data = LineChunks(
            parts.processor.tokenizer,
            seed=config.seed,
            start=chunk,
            min_chars=min(lines.min_chars, progress.max_chars),
            max_chars=progress.max_chars,
            degrade=lines.degrade,
            loose=lines.loose,
            chunk=lines.chunk,
            budget=config.batch_positions,
            token_px=images.factor,
            patch_px=images.patch_size,
            block_length=config.block_length,
            draws=config.draws,
        )
        return batches(data, lines.workers, skip)


def grey_patch_rows(images_NHW: Tensor, processor: ImageProcessor) -> Tensor:
    """`ImageProcessor.patch_rows_grey` in torch, for where the picture is: a GPU takes one byte a pixel and does in no
    time what would keep a processor busy for as long as the step takes."""
    count, height, width = images_NHW.shape
    p, m, frames = processor.patch_size, processor.merge_size, processor.temporal_patch_size
    mean, std = (torch.tensor(v, device=images_NHW.device) for v in (processor.image_mean, processor.image_std))
    levels = torch.arange(256, dtype=torch.float32, device=images_NHW.device)[:, None]
    scaled = ((levels * processor.rescale_factor - mean) / std)[images_NHW.int()]
    windows = scaled.view(count, height // (p * m), m, p, width // (p * m), m, p, -1)
    # -> image, window row, window column, patch row, patch column, channel, y, x; a still image is equal frames
    rows = windows.permute(0, 1, 4, 2, 5, 7, 3, 6)[..., None, :, :]
    return rows.expand(*rows.shape[:6], frames, p, p).reshape(-1, scaled.shape[-1] * frames * p * p)


class Mover:
    """Batches to the device; pixels become patch rows on the way, from one byte a pixel."""

    def __init__(self, parts: Parts, device: torch.device) -> None:
        self.processor, self.profile, self.device = parts.processor, parts.profile, device
        self._prompts: dict[int, Tensor] = {}

    def __call__(self, batch: LineBatch | PackedBatch) -> Inputs | PackedInputs:
        return self._lines(batch) if isinstance(batch, LineBatch) else self._packed(batch)

    def _move(self, tensor: Tensor) -> Tensor:
        return tensor.to(self.device, non_blocking=True)

    def _lines(self, batch: LineBatch) -> Inputs:
        images = self.processor.image_processor
        lines, height, width = batch.images.shape
        count = batch.columns * (height // images.factor)
        if count not in self._prompts:
            prompt = self.processor.prompt(self.profile.prompts["text"], system=self.profile.system_prompt)
            self._prompts[count] = torch.tensor(self.processor.expand(prompt, [count]), device=self.device)
        if self.device.type == "cpu":
            pixels = torch.from_numpy(images.patch_rows_grey(batch.images.numpy()))
        else:
            pixels = grey_patch_rows(self._move(batch.images), images)
        grid = (1, height // images.patch_size, width // images.patch_size)
        return Inputs(
            prompt=self._prompts[count],
            pixels=pixels,
            grid=[grid] * lines,
            answers=self._move(batch.answers),
            lengths=self._move(batch.lengths),
            slots=self._move(batch.slots),
            counts=self._move(batch.counts),
            alignment=self._move(batch.alignment),
        )

    def _packed(self, batch: PackedBatch) -> PackedInputs:
        images = self.processor.image_processor
        patch = images.patch_size
        rows = [images.patch_rows(sample.image.astype(np.float32)) for sample in batch.samples]
        return PackedInputs(
            pixels=self._move(torch.from_numpy(np.concatenate(rows))),
            grid=[(1, s.image.shape[0] // patch, s.image.shape[1] // patch) for s in batch.samples],
            documents=[
                Document(self._move(torch.tensor(s.prompt)), self._move(torch.tensor(s.answer)), s.length)
                for s in batch.samples
            ],
            lines=[s.line for s in batch.samples],
        )
