"""The blocks that are being denoised, one row a sequence, so that a step is a few operations for all of them.

Shapes: S rows of the table, R rows of a step, B block length, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence as Several

import numpy as np
from numpy.typing import NDArray

from mineru_diffusion.engine.sequence import Sequence


class BlockTable:
    """Current blocks of all running (and preempted) sequences.

    Args:
        block_length: B.
        mask_id: what undecided positions hold.
        vocabulary: V.
    """

    def __init__(self, block_length: int, mask_id: int, vocabulary: int) -> None:
        self.block_length, self.mask_id, self.vocabulary = block_length, mask_id, vocabulary
        shape = (0, block_length)
        self.ids = np.zeros(shape, dtype=np.int64)
        self.decided = np.zeros(shape, dtype=bool)
        self.confidence = np.zeros(shape, dtype=np.float32)
        self.step = np.zeros(shape, dtype=np.int64)
        self.total_steps = np.zeros(0, dtype=np.int64)
        self.steps_in_block = np.zeros(0, dtype=np.int64)
        self.limit = np.zeros(0, dtype=np.int64)
        self.taken = np.zeros(0, dtype=np.int64)
        self.skip = np.zeros(0, dtype=bool)
        self.stops = np.zeros(0, dtype=np.int64)
        self._stop_sets: dict[frozenset[int], int] = {}
        self._is_stop = np.zeros((0, vocabulary), dtype=bool)
        self._free: list[int] = []

    def rows(self, sequences: Several[Sequence]) -> NDArray[np.int64]:
        """Rows [R] of sequences; who has none gets one with a fresh block."""
        for sequence in sequences:
            if sequence.row < 0:
                self._enter(sequence)
        return np.array([sequence.row for sequence in sequences], dtype=np.int64)

    def release(self, sequence: Sequence) -> None:
        """Give the row of a finished or cancelled sequence back."""
        if sequence.row >= 0:
            self._free.append(sequence.row)
            sequence.row = -1

    def masked(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Positions that may still be decided [R, B]."""
        decided = self.decided[rows]
        masked = ~decided
        if self.skip[rows].any():
            behind = np.logical_or.accumulate(decided & self._stopping(rows), axis=1)
            masked &= ~(behind & self.skip[rows][:, None])
        return masked

    def decide(
        self,
        sequences: Several[Sequence],
        rows: NDArray[np.int64],
        chosen_RB: NDArray[np.bool_],
        tokens_RB: NDArray[np.int64],
        confidence_RB: NDArray[np.float32],
    ) -> None:
        """Write the chosen positions, then end the blocks and requests for which that is due."""
        self.total_steps[rows] += 1
        self.steps_in_block[rows] += 1
        ids = np.where(chosen_RB, tokens_RB, self.ids[rows])
        decided = self.decided[rows] | chosen_RB
        self.ids[rows], self.decided[rows] = ids, decided
        self.confidence[rows] = np.where(chosen_RB, confidence_RB, self.confidence[rows])
        self.step[rows] = np.where(chosen_RB, self.total_steps[rows][:, None], self.step[rows])
        # Tokens that count: the decided prefix, cut at the limit.
        full = decided.all(axis=1)
        prefix = np.where(full, self.block_length, np.argmin(decided, axis=1))
        room = self.limit[rows] - self.taken[rows]
        prefix = np.minimum(prefix, room)
        stops = self._stopping(rows) & (np.arange(self.block_length) < prefix[:, None])
        stopped = stops.any(axis=1)
        first_stop = stops.argmax(axis=1)
        for at in np.flatnonzero(stopped | full | (prefix == room)).tolist():
            sequence = sequences[at]
            self._take(sequence, int(first_stop[at] if stopped[at] else prefix[at]))
            if stopped[at]:
                # What ends by itself is no loop, however often it repeats.
                sequence.finish_reason = "stop"
            elif sequence.in_a_loop():
                sequence.finish_reason = "repetition"
            elif prefix[at] == room[at]:
                sequence.finish_reason = "length"
            else:
                self._fresh(sequence)

    def _take(self, sequence: Sequence, count: int) -> None:
        row = sequence.row
        sequence.tokens += self.ids[row, :count].tolist()
        sequence.confidences += self.confidence[row, :count].tolist()
        sequence.steps += self.step[row, :count].tolist()

    def _stopping(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which positions hold a stop token of their request [R, B]."""
        return self._is_stop[self.stops[rows][:, None], self.ids[rows]]

    def _fresh(self, sequence: Sequence) -> None:
        row = sequence.row
        self.ids[row] = self.mask_id
        self.decided[row] = False
        self.steps_in_block[row] = 0
        self.taken[row] = len(sequence.tokens)

    def _enter(self, sequence: Sequence) -> None:
        if not self._free:
            self._grow()
        sequence.row = self._free.pop()
        self.total_steps[sequence.row] = 0
        self.limit[sequence.row] = sequence.max_tokens
        self.skip[sequence.row] = sequence.skip_after_stop
        self.stops[sequence.row] = self._stop_set(sequence.stop_ids)
        self._fresh(sequence)

    def _stop_set(self, ids: frozenset[int]) -> int:
        if ids not in self._stop_sets:
            self._stop_sets[ids] = len(self._is_stop)
            flags = np.zeros((1, self.vocabulary), dtype=bool)
            flags[0, [i for i in ids if 0 <= i < self.vocabulary and i != self.mask_id]] = True
            self._is_stop = np.concatenate((self._is_stop, flags))
        return self._stop_sets[ids]

    def _grow(self) -> None:
        old = len(self.total_steps)
        new = max(32, 2 * old)
        for name, table in vars(self).items():
            if isinstance(table, np.ndarray) and name != "_is_stop":
                grown = np.zeros((new, *table.shape[1:]), dtype=table.dtype)
                grown[:old] = table
                setattr(self, name, grown)
        self._free = list(range(new - 1, old - 1, -1))
