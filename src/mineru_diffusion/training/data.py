"""Rendered lines to batches, exactly resumable: the data is a sequence of chunks, chunk c depends only on the seed and
c, and inside a chunk the batches have a fixed order, however many workers make them.

Shapes: N lines, S patches a line, M columns of visual tokens a line, A answer length (C blocks of B), Q slots a column.
A line may be several visual tokens high; what the helper losses ask is asked of the upper one, its column's speaker.
"""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from transformers import PreTrainedTokenizerBase

from mineru_diffusion.document.crops import fit_line
from mineru_diffusion.synthesis.lines import LineSample, LineStream

SLOT_WIDTH = 4
"""Pixels of a slot: at 32 px line height no letter is much narrower."""

GUARD_SECONDS = 2.0
"""How long a worker may outlive its trainer."""


@dataclass
class LineBatch:
    """One batch as it comes from a worker; all lines padded to one width.

    Attributes:
        images: uint8 greyscale [N, H, W].
        answers: token ids [N, A]: the text, the end token, then fill tokens.
        lengths: characters + 1 (the end token) [N].
        slots: for each column's slots, the token id of the character whose middle lies there, or -1 [N, M, Q].
        counts: characters whose middle lies left of each column [N, M].
        alignment: column that shows each answer token's character [N, A]; -1 for fill tokens.
        texts: the truth.
    """

    images: Tensor
    answers: Tensor
    lengths: Tensor
    slots: Tensor
    counts: Tensor
    alignment: Tensor
    texts: list[str]

    @property
    def columns(self) -> int:
        return self.slots.shape[1]


def pack_lines(
    samples: list[LineSample], tokenizer: PreTrainedTokenizerBase, token_px: int, block_length: int
) -> LineBatch:
    """Make one batch; every line is padded on the right to the widest, with its own paper colour."""
    fitted = [fit_line(Image.fromarray(s.image), height=s.image.shape[0], multiple=token_px) for s in samples]
    width = max(image.width for image in fitted)
    count = width // token_px
    images = np.stack([_widen(np.asarray(image.convert("L")), width) for image in fitted])
    end, fill = tokenizer.eos_token_id, tokenizer.pad_token_id
    ids = [tokenizer.convert_tokens_to_ids(list(s.text)) for s in samples]
    longest = max(len(i) for i in ids) + 1
    answer_length = -(-longest // block_length) * block_length
    answers = np.full((len(samples), answer_length), fill, dtype=np.int64)
    alignment = np.full_like(answers, -1)
    per_token = token_px // SLOT_WIDTH
    slots = np.full((len(samples), count * per_token), -1, dtype=np.int64)
    counts = np.zeros((len(samples), count), dtype=np.int64)
    for row, (sample, tokens) in enumerate(zip(samples, ids, strict=True)):
        length = len(tokens)
        answers[row, :length] = tokens
        answers[row, length] = end
        middles = sample.char_x.mean(axis=1)
        where = np.clip(middles // token_px, 0, count - 1).astype(np.int64)
        alignment[row, :length] = where
        alignment[row, length] = where[-1]
        slots[row, np.clip(middles // SLOT_WIDTH, 0, count * per_token - 1).astype(np.int64)] = tokens
        counts[row] = np.searchsorted(middles, np.arange(count) * token_px)
    lengths = np.array([len(i) + 1 for i in ids])
    return LineBatch(
        images=torch.from_numpy(images),
        answers=torch.from_numpy(answers),
        lengths=torch.from_numpy(lengths),
        slots=torch.from_numpy(slots.reshape(len(samples), count, per_token)),
        counts=torch.from_numpy(counts),
        alignment=torch.from_numpy(alignment),
        texts=[s.text for s in samples],
    )


def _widen(image: NDArray[np.uint8], width: int) -> NDArray[np.uint8]:
    return np.pad(image, ((0, 0), (0, width - image.shape[1])), mode="edge") if image.shape[1] < width else image


class LineChunks(IterableDataset[tuple[int, list[LineBatch]]]):
    """Endless chunks of batches of lines, with their numbers.

    Args:
        seed: of the data.
        start: chunk to begin with.
        max_chars: longest line; see `LineStream` for the rest.
        budget: positions a batch may hold, counted by `cost`.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        *,
        seed: int,
        start: int = 0,
        split: str = "train",
        min_chars: int = 1,
        max_chars: int = 70,
        degrade: float = 1.0,
        loose: float = 1.0,
        chunk: int = 2048,
        budget: int = 6000,
        token_px: int = 32,
        patch_px: int = 8,
        block_length: int = 16,
        draws: int = 2,
    ) -> None:
        self.tokenizer = tokenizer
        self.seed, self.start, self.split = seed, start, split
        self.min_chars, self.max_chars, self.degrade, self.loose = min_chars, max_chars, degrade, loose
        self.chunk, self.budget = chunk, budget
        self.token_px, self.patch_px, self.block_length, self.draws = token_px, patch_px, block_length, draws

    def cost(self, sample: LineSample) -> int:
        """Positions that a line costs: decoder positions, and patches at about half their price."""
        height, width = sample.image.shape
        columns, rows = -(-width // self.token_px), -(-height // self.token_px)
        answer = -(-(len(sample.text) + 1) // self.block_length) * self.block_length
        patches = columns * rows * (self.token_px // self.patch_px) ** 2
        return 14 + columns * rows + (1 + self.draws) * answer - self.block_length + patches // 2

    def make_chunk(self, number: int) -> list[LineBatch]:
        """All batches of one chunk, in their order."""
        stream = iter(
            LineStream(
                seed=int(np.random.SeedSequence([self.seed, number]).generate_state(1)[0]),
                split=self.split,
                min_chars=self.min_chars,
                max_chars=self.max_chars,
                degrade=self.degrade,
                loose=self.loose,
            )
        )
        samples = sorted((next(stream) for _ in range(self.chunk)), key=lambda s: (s.image.shape[1], s.text))
        groups: list[list[LineSample]] = [[]]
        worst = 0
        for sample in samples:
            worst = max(worst, self.cost(sample))
            if groups[-1] and worst * (len(groups[-1]) + 1) > self.budget:
                groups.append([])
                worst = self.cost(sample)
            groups[-1].append(sample)
        order = np.random.default_rng([self.seed, number, 1]).permutation(len(groups))
        return [pack_lines(groups[i], self.tokenizer, self.token_px, self.block_length) for i in order]

    def __iter__(self) -> Iterator[tuple[int, list[LineBatch]]]:
        for number in worker_share(self.start):
            yield number, self.make_chunk(number)


def worker_share(start: int) -> Iterator[int]:
    """Numbers from `start` on that this worker makes: DataLoader takes turns, so together they come in order."""
    worker = get_worker_info()
    if worker is not None:
        torch.set_num_threads(1)
    return count(start + (worker.id if worker else 0), worker.num_workers if worker else 1)


def bind_to_trainer(trainer: int, worker: int) -> None:
    """Make a worker live exactly as long as its trainer wants, whatever happens around them.

    Ctrl-C and a batch system's SIGTERM reach every process of a job, and a trainer that then finishes its step and
    saves needs its workers until it is done: SIGTERM ends a worker only if the trainer sends it, as DataLoader does at
    its end. And a worker whose trainer is gone without a word ends, even in the middle of handing over a chunk, where
    DataLoader's own watchdog waits forever for a reader. Where the system does not tell who sent a signal (macOS,
    Windows), SIGTERM stays as it is.

    Args:
        trainer: process that the worker works for.
        worker: its number, which DataLoader passes.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    told = hasattr(signal, "sigtimedwait")
    if told:
        # Blocked, so that it waits for the thread, which can ask who sent it; a handler cannot.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    parent = os.getppid()

    def guard() -> None:
        while os.getppid() == parent:
            if not told:
                time.sleep(GUARD_SECONDS)
                continue
            found = signal.sigtimedwait({signal.SIGTERM}, GUARD_SECONDS)
            if found is not None and found.si_pid == trainer:
                break
        os._exit(0)

    threading.Thread(target=guard, name=f"guard of worker {worker}", daemon=True).start()


class _Packed(IterableDataset[bytes]):
    """Chunks as bytes: tensors of a worker would each take a file descriptor, and a chunk has hundreds."""

    def __init__(self, chunks: IterableDataset[Any]) -> None:
        self.chunks = chunks

    def __iter__(self) -> Iterator[bytes]:
        return map(pickle.dumps, self.chunks)


def batches(chunks: IterableDataset[Any], workers: int, skip: int) -> Iterator[tuple[int, int, Any]]:
    """Batches with their chunk's and their own number, made ahead in `workers` processes (0: in this one).

    Args:
        chunks: yields (number, batches) whole chunks at a time.
        skip: batches of the first chunk that are left out.
    """
    loader = DataLoader(
        _Packed(chunks),
        batch_size=None,
        num_workers=workers,
        prefetch_factor=2 if workers else None,
        worker_init_fn=partial(bind_to_trainer, os.getpid()),
    )
    for packed in loader:
        number, chunk = pickle.loads(packed)
        yield from ((number, i, batch) for i, batch in enumerate(chunk) if i >= skip)
        skip = 0
