"""One request on its way through the engine: its prompt, its pages, its finished tokens. Plain state, no computing.

Positions: the prompt takes 0 .. P-1, generated token g takes P + g. Blocks are aligned to the prompt's end, so the
first one of the prompt is the short one. With `causal` (autoregressive checkpoints) a block is one position, nothing is
masked, and the output at a position is the next position's token.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mineru_diffusion.diffusion.unmasking import UnmaskingPolicy
from mineru_diffusion.engine.loops import repeating_tail
from mineru_diffusion.engine.rows import Run
from mineru_diffusion.engine.types import FinishReason, Result

GUARD_EVERY = 32
"""The loop guard looks once in so many tokens."""


@dataclass(eq=False)
class Sequence:
    """State of one request.

    Attributes:
        id: the request's id; a smaller one arrived earlier.
        prompt_ids: P token ids.
        policy: unmasking policy.
        temperature: 0 is greedy.
        max_tokens: tokens to generate at most.
        stop_ids: ids that end the request.
        skip_after_stop: do not decide positions behind a decided stop.
        guard: watch for loops.
        causal: one position a block, and outputs are next tokens.
        generator: random stream of this request (sampling only).
        pages, slots: where its keys and values are; slots are those of the positions on the pages.
        prompt_embeds: [P, W], kept to the end, so that a request whose pages were taken away can start over.
        problem: why it has none and never will.
        cached: positions whose final keys and values are in the cache.
        row: its row in the table of blocks, -1 before its first step.
        step_times: when each of its steps ended, in `time.perf_counter()` seconds.
    """

    id: int
    prompt_ids: list[int]
    block_length: int
    mask_id: int
    policy: UnmaskingPolicy
    max_tokens: int
    stop_ids: frozenset[int]
    temperature: float = 0.0
    skip_after_stop: bool = True
    guard: bool = True
    causal: bool = False
    generator: torch.Generator | None = None
    tag: object = None

    pages: list[int] = field(default_factory=list)
    slots: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    prompt_embeds: Tensor | None = None
    problem: str | None = None
    cached: int = 0
    row: int = -1
    nfe: int = 0
    tokens: list[int] = field(default_factory=list)
    confidences: list[float] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    step_times: list[float] = field(default_factory=list)
    finish_reason: FinishReason | None = None

    def __post_init__(self) -> None:
        self.pad = -len(self.prompt_ids) % self.block_length
        self._guard_at = GUARD_EVERY

    @property
    def to_embed(self) -> bool:
        """Whether its prompt is still to be embedded."""
        return self.prompt_embeds is None and self.problem is None

    @property
    def known(self) -> int:
        """Positions whose tokens are final: the prompt and all finished blocks."""
        return len(self.prompt_ids) + len(self.tokens)

    @property
    def pending(self) -> int:
        """Known positions that are not in the cache yet. A causal sequence always has one: its last token."""
        return self.known - self.cached

    @property
    def asked(self) -> tuple[int, int]:
        """The positions whose outputs the next step needs."""
        return (self.known - 1, self.known) if self.causal else (self.known, self.known + self.block_length)

    @property
    def longest(self) -> int:
        """Positions that the request can ever need."""
        return len(self.prompt_ids) + -(-self.max_tokens // self.block_length) * self.block_length

    def cut(self, positions: int) -> int:
        """End of a piece of at most `positions` pending positions (but at least one block) that ends with a block."""
        stop = self.cached + positions
        if stop >= self.known:
            return self.known
        end = (stop + self.pad) // self.block_length * self.block_length - self.pad
        first = ((self.cached + self.pad) // self.block_length + 1) * self.block_length - self.pad
        return max(end, first)

    def run(self, start: int, stop: int) -> Run:
        """Positions `start` to `stop` as a run of a pass."""
        return Run(self.slots, start, stop, self.block_length, self.pad)

    def in_a_loop(self) -> bool:
        """Whether the tail repeats beyond what documents do; it is cut off then."""
        if not self.guard or len(self.tokens) < self._guard_at:
            return False
        self._guard_at = len(self.tokens) + GUARD_EVERY
        keep = repeating_tail(self.tokens)
        if keep is None:
            return False
        for part in (self.tokens, self.confidences, self.steps):
            del part[keep:]
        return True

    def result(self, text: str, finish_reason: FinishReason | None = None) -> Result:
        """The result, once `finish_reason` is set (or with another one)."""
        reason = finish_reason or self.finish_reason
        assert reason is not None
        return Result(
            text=text,
            tokens=tuple(self.tokens),
            confidences=tuple(self.confidences),
            steps=tuple(self.steps),
            nfe=self.nfe,
            finish_reason=reason,
            tag=self.tag,
            prompt_tokens=len(self.prompt_ids),
            step_times=tuple(self.step_times),
        )
