"""Which positions go into the next pass. Denoising goes first, as it finishes requests; a share is kept for prompts, so
that neither starves. Pages are taken as they are needed; when there are none left, the youngest request gives its own
back and starts over later with what it has decided so far."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass

import numpy as np

from mineru_diffusion.engine.cache import PagedCache
from mineru_diffusion.engine.rows import Run
from mineru_diffusion.engine.sequence import Sequence

PREFILL_SHARE = 4
"""One position of this many is kept for prompts while any prompt waits."""


@dataclass(frozen=True)
class Planned:
    """Consecutive positions of one sequence in the next pass: known ones (prompt, finished blocks) from `start` to
    `known`, then, with `asks`, those that the step needs beyond them."""

    sequence: Sequence
    start: int
    known: int
    asks: bool

    @property
    def stop(self) -> int:
        """Behind the last position."""
        return max(self.known, self.sequence.asked[1]) if self.asks else self.known

    def run(self) -> Run:
        """Where these positions' keys and values live, and what they see."""
        return self.sequence.run(self.start, self.stop)


class Scheduler:
    """Admits requests and plans passes.

    Args:
        cache: pages.
        max_rows: sequences that run at a time.
        budget: positions of a pass.
    """

    def __init__(self, cache: PagedCache, max_rows: int, budget: int) -> None:
        self.cache = cache
        self.max_rows = max_rows
        self.budget = budget
        self.waiting: deque[Sequence] = deque()
        self.running: OrderedDict[int, Sequence] = OrderedDict()
        self.preempted = 0

    def fits(self, sequence: Sequence) -> bool:
        """Whether the request could ever run to its end, alone."""
        return self.cache.pages_for(sequence.longest) <= self.cache.max_pages

    def admit(self) -> list[Sequence]:
        """Move waiting requests into the running set, in order of arrival, as long as there are pages for what they
        know and their next step, and one for each that runs already."""
        admitted: list[Sequence] = []
        if not self.waiting:
            return admitted
        promised = sum(self._missing(s, s.asked[1]) for s in self.running.values())
        while self.waiting and len(self.running) < self.max_rows:
            sequence = self.waiting[0]
            need = self._missing(sequence, sequence.asked[1])
            if self.running and promised + need + len(self.running) > self.cache.left:
                break
            promised += need
            self.waiting.popleft()
            self.running[sequence.id] = sequence
            admitted.append(sequence)
        return admitted

    def release(self, sequence: Sequence) -> None:
        """Drop a request and free its pages; a waiting one just leaves the queue."""
        if self.running.pop(sequence.id, None) is None:
            self.waiting.remove(sequence)
        self._free_pages(sequence)

    def plan(self) -> list[Planned]:
        """The next pass; pages are allocated for new positions."""
        budget = self.budget
        prompts = [s for s in self.running.values() if s.pending > s.block_length]
        waits = sum(s.pending for s in prompts)
        kept = min(budget // PREFILL_SHARE, waits)
        planned: list[Planned] = []
        chosen: set[int] = set()
        for sequence in list(self.running.values()):
            if sequence.id not in self.running or sequence.pending > sequence.block_length:
                continue
            start, (_, stop) = sequence.cached, sequence.asked
            if stop - start > budget - kept and planned:
                break
            if self._lay(sequence, stop, chosen):
                planned.append(Planned(sequence, start, sequence.known, True))
                chosen.add(sequence.id)
                budget -= stop - start
                # Round-robin: whoever ran goes to the back.
                self.running.move_to_end(sequence.id)
        for sequence in prompts:
            if budget < sequence.block_length and planned:
                break
            if sequence.id not in self.running:
                continue
            start, known = sequence.cached, sequence.cut(max(budget, 1))
            # The first denoising step rides along with the prompt's last block.
            asks = known == sequence.known and (sequence.asked[1] - start <= budget or not planned)
            stop = max(known, sequence.asked[1]) if asks else known
            if self._lay(sequence, stop, chosen):
                planned.append(Planned(sequence, start, known, asks))
                chosen.add(sequence.id)
                budget -= stop - start
        return planned

    def _missing(self, sequence: Sequence, positions: int) -> int:
        """Pages that a sequence lacks to hold `positions`."""
        return max(0, self.cache.pages_for(positions) - len(sequence.pages))

    def _lay(self, sequence: Sequence, positions: int, chosen: set[int]) -> bool:
        """Give a sequence pages up to `positions`, taken from younger ones that are not in this pass if need be."""
        need = self._missing(sequence, positions)
        while need > self.cache.left:
            younger = [i for i in self.running if i > sequence.id and i not in chosen and self.running[i].pages]
            if not younger:
                return False
            self._preempt(self.running[max(younger)])
        if need:
            new = self.cache.allocate(need, sequence.pages[-1] if sequence.pages else None)
            sequence.pages += new
            sequence.slots = np.concatenate((sequence.slots, self.cache.slots(new)))
        return True

    def _preempt(self, sequence: Sequence) -> None:
        del self.running[sequence.id]
        self._free_pages(sequence)
        # Before those that never ran, and in order of age among themselves.
        at = next((i for i, s in enumerate(self.waiting) if s.id > sequence.id), len(self.waiting))
        self.waiting.insert(at, sequence)
        self.preempted += 1

    def _free_pages(self, sequence: Sequence) -> None:
        if sequence.pages:
            self.cache.release(sequence.pages)
        sequence.pages = []
        sequence.slots = np.zeros(0, dtype=np.int64)
        sequence.cached = 0
