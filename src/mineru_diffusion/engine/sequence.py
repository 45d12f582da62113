"""One request on its way through the engine: its prompt, its pages, its current block. Plain state, no torch compute.

Positions: the prompt takes 0 .. P-1, generated token g takes P + g. Slot s of page j holds position j * B + s - pad.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mineru_diffusion.diffusion.unmasking import UnmaskingPolicy
from mineru_diffusion.engine.loops import repeating_tail
from mineru_diffusion.engine.types import FinishReason, Result


@dataclass
class Sequence:
    """State of one request.

    Attributes:
        id: the request's id.
        prompt_ids: P token ids.
        policy: unmasking policy.
        temperature: 0 is greedy.
        max_tokens: tokens to generate at most.
        stop_ids: ids that end the request.
        skip_after_stop: do not decide positions behind a decided stop.
        guard: watch for loops.
        generator: random stream of this request (sampling only).
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
    generator: torch.Generator | None = None
    tag: object = None

    pages: list[int] = field(default_factory=list)
    prompt_embeds: Tensor | None = None
    prefilled: int = 0
    nfe: int = 0
    tokens: list[int] = field(default_factory=list)
    confidences: list[float] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    block: NDArray[np.int64] = field(init=False)
    block_confidence: NDArray[np.float32] = field(init=False)
    block_step: NDArray[np.int64] = field(init=False)
    decided: NDArray[np.bool_] = field(init=False)
    uncommitted: NDArray[np.int64] | None = None
    total_steps: int = 0
    steps_in_block: int = 0
    finish_reason: FinishReason | None = None

    def __post_init__(self) -> None:
        self.pad = -len(self.prompt_ids) % self.block_length
        self.prompt_pages = -(-len(self.prompt_ids) // self.block_length)
        self._new_block()

    @property
    def reserved_pages(self) -> int:
        """Pages that the request can ever need."""
        return self.prompt_pages + -(-self.max_tokens // self.block_length)

    def _new_block(self) -> None:
        size = self.block_length
        self.block = np.full(size, self.mask_id, dtype=np.int64)
        self.block_confidence = np.zeros(size, dtype=np.float32)
        self.block_step = np.zeros(size, dtype=np.int64)
        self.decided = np.zeros(size, dtype=bool)
        self.steps_in_block = 0

    @property
    def masked(self) -> NDArray[np.bool_]:
        """Positions of the current block that may still be decided [B]."""
        masked = ~self.decided
        if self.skip_after_stop:
            stops = np.flatnonzero(self.decided & np.isin(self.block, list(self.stop_ids)))
            if stops.size:
                masked[stops[0] :] = False
        return masked

    def decide(self, chosen: NDArray[np.bool_], tokens: NDArray[np.int64], confidence: NDArray[np.float32]) -> None:
        """Write the chosen positions of the current block [B], then end the block or the request if that is due."""
        self.total_steps += 1
        self.steps_in_block += 1
        self.block[chosen] = tokens[chosen]
        self.block_confidence[chosen] = confidence[chosen]
        self.block_step[chosen] = self.total_steps
        self.decided |= chosen
        # Tokens that count: the decided prefix, cut at the limit.
        room = self.max_tokens - len(self.tokens)
        open_positions = np.flatnonzero(~self.decided)
        prefix = min(int(open_positions[0]) if open_positions.size else self.block_length, room)
        stops = np.flatnonzero(np.isin(self.block[:prefix], list(self.stop_ids)))
        if stops.size:
            self._take(int(stops[0]))
            self.finish_reason = "stop"
        elif prefix == room:
            self._take(prefix)
            self.finish_reason = "length"
        elif not open_positions.size:
            self._take(self.block_length)
            self.uncommitted = self.block
            self._check_loop()
            self._new_block()

    def _take(self, count: int) -> None:
        self.tokens.extend(int(t) for t in self.block[:count])
        self.confidences.extend(float(c) for c in self.block_confidence[:count])
        self.steps.extend(int(s) for s in self.block_step[:count])

    def _check_loop(self) -> None:
        keep = repeating_tail(self.tokens) if self.guard else None
        if keep is not None:
            for part in (self.tokens, self.confidences, self.steps):
                del part[keep:]
            self.finish_reason = "repetition"

    def result(self, text: str) -> Result:
        """The result, once `finish_reason` is set."""
        assert self.finish_reason is not None
        return Result(
            text=text,
            tokens=tuple(self.tokens),
            confidences=tuple(self.confidences),
            steps=tuple(self.steps),
            nfe=self.nfe,
            finish_reason=self.finish_reason,
            tag=self.tag,
        )
