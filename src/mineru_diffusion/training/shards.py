"""Samples from Parquet shards to packed batches, exactly resumable: a chunk is a run of rows, chunk c depends only on
the files and the seed, and inside a chunk the batches have a fixed order.

Images keep their own sizes; samples stand one after the other in one sequence (no padding between them), alike lengths
together, up to a number of positions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch.utils.data import IterableDataset

from mineru_diffusion.document.crops import fit_line, layout_image, resize_by_need
from mineru_diffusion.engine.types import CheckpointProfile
from mineru_diffusion.errors import UsageError
from mineru_diffusion.model import MinerUDiffusionProcessor
from mineru_diffusion.parsing.lines import close_crop
from mineru_diffusion.synthesis.sample import Sample
from mineru_diffusion.synthesis.shards import count_rows, read_rows
from mineru_diffusion.training.data import worker_share
from mineru_diffusion.training.export import end_token, fill_token

SUFFIX = ".parquet"


@dataclass(frozen=True)
class EncodedSample:
    """A sample as the network takes it.

    Attributes:
        image: uint8 RGB [H, W, 3], of a size that the vision tower takes.
        prompt: ids with a place for each visual token.
        answer: text, end token, fill to whole blocks.
        length: of text and end token.
        line: UTF-8 of the text if the image shows a single line, else None.
    """

    image: NDArray[np.uint8]
    prompt: list[int]
    answer: list[int]
    length: int
    line: bytes | None


@dataclass(frozen=True)
class PackedBatch:
    """Samples of one packed sequence."""

    samples: list[EncodedSample]


def prepare_image(sample: Sample, profile: CheckpointProfile, factor: int) -> Image.Image:
    """The sample's picture as the parser would send it: pages squashed for layout, lines at the line height, other
    regions at their own size.

    Args:
        factor: pixels that a visual token is wide.
    """
    image = Image.fromarray(sample.image).convert("RGB")
    if sample.task == "layout":
        return layout_image(image, profile.layout_image_size)
    if sample.task == "text" and profile.text_unit == "line":
        return fit_line(close_crop(image), height=profile.line_height, multiple=factor)
    return resize_by_need(image)


def suits(sample: Sample, profile: CheckpointProfile) -> bool:
    """Whether a checkpoint could be shown the sample: one that reads lines is not shown several on one picture, which
    `prepare_image` would squash to the height of one. Told by line breaks in the truth, or by `lines` in the source,
    which synthetic paragraphs have."""
    if sample.task != "text" or profile.text_unit != "line":
        return True
    lines = sample.source.get("lines", 1)
    return "\n" not in sample.target and not (isinstance(lines, int) and lines > 1)


class SampleEncoder:
    """Encodes samples for one checkpoint.

    Args:
        processor: tokenizer and image processor.
        profile: prompts, line height and layout size.
        block_length: answers are filled up to a multiple of it.
    """

    def __init__(self, processor: MinerUDiffusionProcessor, profile: CheckpointProfile, block_length: int) -> None:
        self.processor, self.profile, self.block_length = processor, profile, block_length
        self._prompts = CheckpointProfile().prompts | profile.prompts
        self._end, self._fill = end_token(processor), fill_token(processor)

    def __call__(self, sample: Sample) -> EncodedSample:
        images = self.processor.image_processor
        picture = images.resize(prepare_image(sample, self.profile, images.factor))
        prompt = self.processor.prompt(self._prompts[sample.task], system=self.profile.system_prompt)
        tokens = self.processor.tokenizer(sample.target, add_special_tokens=False)["input_ids"]
        answer = [*tokens, self._end]
        single = sample.task == "text" and "\n" not in sample.target and picture.height * 2 <= picture.width
        return EncodedSample(
            image=np.asarray(picture),
            prompt=self.processor.expand(prompt, [images.tokens(picture)]),
            answer=answer + [self._fill] * (-len(answer) % self.block_length),
            length=len(answer),
            line=sample.target.encode() if single else None,
        )


def shard_files(source: str | Path) -> list[Path]:
    """The shards that a data source names: one file, or all of a folder.

    Raises:
        UsageError: there are none.
    """
    path = Path(source)
    files = sorted(path.rglob(f"*{SUFFIX}")) if path.is_dir() else [path] if path.is_file() else []
    if not files:
        raise UsageError(f"{path}: no shards there (*{SUFFIX}); make some with `mineru-diffusion synth`")
    return files


class ShardChunks(IterableDataset[tuple[int, list[PackedBatch]]]):
    """Endless chunks of packed batches, with their numbers: epoch after epoch, files in another order each time.
    Samples that do not suit the checkpoint are left out.

    Args:
        source: a shard or a folder of shards.
        encoder: see `SampleEncoder`.
        seed: of the order.
        start: chunk to begin with.
        chunk: rows of a chunk.
        budget: positions a batch may hold; samples that need more alone are left out.
        draws: noisy streams of the objective.
        max_visual: samples with more visual tokens are left out.

    Raises:
        UsageError: no shards, or none of their samples fits.
    """

    def __init__(
        self,
        source: str | Path,
        encoder: SampleEncoder,
        *,
        seed: int,
        start: int = 0,
        chunk: int = 256,
        budget: int = 6000,
        draws: int = 2,
        max_visual: int = 2048,
    ) -> None:
        self.source, self.encoder = str(source), encoder
        self.seed, self.start, self.chunk = seed, start, chunk
        self.budget, self.draws, self.max_visual = budget, draws, max_visual
        self.files = shard_files(source)
        # Chunks never cross files, so that a chunk's rows are one read.
        self.spans = [
            (number, first) for number, file in enumerate(self.files) for first in range(0, count_rows(file), chunk)
        ]
        if not self.spans:
            raise UsageError(f"{source}: its shards have no rows")

    def cost(self, sample: EncodedSample) -> int:
        """Positions that a sample costs: decoder positions, and patches at about half their price."""
        images = self.encoder.processor.image_processor
        patches = sample.image.shape[0] * sample.image.shape[1] // images.patch_size**2
        answer = len(sample.answer)
        return len(sample.prompt) + (1 + self.draws) * answer - self.encoder.block_length + patches // 2

    def rows(self, number: int) -> list[Sample]:
        """The samples of one chunk."""
        epoch, index = divmod(number, len(self.spans))
        order = np.random.default_rng([self.seed, epoch]).permutation(len(self.spans))
        file, first = self.spans[order[index]]
        return read_rows(self.files[file], first, first + self.chunk)

    def make_chunk(self, number: int) -> list[PackedBatch]:
        """All batches of one chunk, in their order."""
        encoded = [self.encoder(s) for s in self.rows(number) if suits(s, self.encoder.profile)]
        visual = self.encoder.processor.image_processor.factor**2
        costs = [
            (self.cost(sample), index)
            for index, sample in enumerate(encoded)
            if sample.image.shape[0] * sample.image.shape[1] <= self.max_visual * visual
        ]
        groups = pack(sorted(c for c in costs if c[0] <= self.budget), self.budget)
        order = np.random.default_rng([self.seed, number, 1]).permutation(len(groups))
        return [PackedBatch([encoded[i] for i in groups[g]]) for g in order]

    def __iter__(self) -> Iterator[tuple[int, list[PackedBatch]]]:
        empty = 0
        for number in worker_share(self.start):
            batches = self.make_chunk(number)
            empty = 0 if batches else empty + 1
            if empty > len(self.spans):
                raise UsageError(
                    f"{self.source}: no sample fits batch_positions {self.budget} and data.max_visual "
                    f"{self.max_visual}; raise them (text of several lines never fits a checkpoint that reads lines)"
                )
            yield number, batches


def pack(costs: Sequence[tuple[int, int]], budget: int) -> list[list[int]]:
    """Groups of sample numbers whose costs sum to at most `budget`, in the order of `costs` [(cost, number)]."""
    groups: list[list[int]] = []
    room = 0
    for cost, number in costs:
        if not groups or cost > room:
            groups.append([])
            room = budget
        groups[-1].append(number)
        room -= cost
    return groups
