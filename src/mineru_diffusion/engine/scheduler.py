"""Which rows go into the next pass. Denoising goes first, as it finishes requests; a share is kept for prompts, so that
neither starves."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass

from mineru_diffusion.engine.cache import PagedCache
from mineru_diffusion.engine.rows import RowSpan
from mineru_diffusion.engine.sequence import Sequence

PREFILL_SHARE = 4
"""One row of this many is kept for prompts while any prompt waits."""


@dataclass(frozen=True)
class PlannedRows:
    """Consecutive rows of one sequence in the next pass: `prompt_rows` prompt blocks from `first_prompt_row`, then the
    finished block (`commit`), then the block being denoised (`denoise`)."""

    sequence: Sequence
    first_prompt_row: int
    prompt_rows: int
    commit: bool
    denoise: bool

    @property
    def count(self) -> int:
        return self.prompt_rows + self.commit + self.denoise

    def span(self) -> RowSpan:
        """Where these rows' keys and values live."""
        return RowSpan(tuple(self.sequence.pages), self.count, self.sequence.pad)


class Scheduler:
    """Admits requests while the cache can hold them to their end, and plans passes.

    Args:
        cache: pages; a request is admitted only if all pages that it can ever need are unreserved, so that nothing
            has to be thrown out half-way.
        max_rows: rows of a pass, and sequences that run at a time.
    """

    def __init__(self, cache: PagedCache, max_rows: int) -> None:
        self.cache = cache
        self.max_rows = max(2, max_rows)
        self.waiting: deque[Sequence] = deque()
        self.running: OrderedDict[int, Sequence] = OrderedDict()
        self._reserved = 0

    def fits(self, sequence: Sequence) -> bool:
        """Whether the request could ever run."""
        return sequence.reserved_pages <= self.cache.max_pages

    def admit(self) -> list[Sequence]:
        """Move waiting requests into the running set, in order of arrival."""
        admitted = []
        while self.waiting and len(self.running) < self.max_rows:
            if self._reserved + self.waiting[0].reserved_pages > self.cache.max_pages:
                break
            sequence = self.waiting.popleft()
            self._reserved += sequence.reserved_pages
            self.running[sequence.id] = sequence
            admitted.append(sequence)
        return admitted

    def release(self, sequence: Sequence) -> None:
        """Drop a request and free its pages; a waiting one just leaves the queue."""
        if self.running.pop(sequence.id, None) is None:
            self.waiting.remove(sequence)
            return
        self._reserved -= sequence.reserved_pages
        self.cache.release(sequence.pages)
        sequence.pages = []

    def plan(self) -> list[PlannedRows]:
        """Rows of the next pass; pages are allocated for new ones."""
        budget = self.max_rows
        prompts = [s for s in self.running.values() if s.prefilled < s.prompt_pages]
        kept = min(budget // PREFILL_SHARE, sum(s.prompt_pages - s.prefilled for s in prompts)) if prompts else 0
        planned: list[PlannedRows] = []
        for sequence in list(self.running.values()):
            if sequence.prefilled < sequence.prompt_pages:
                continue
            commit = sequence.uncommitted is not None
            if budget - kept < 1 + commit and planned:
                break
            planned.append(PlannedRows(sequence, sequence.prompt_pages, 0, commit, True))
            budget -= 1 + commit
            # Round-robin: whoever ran goes to the back.
            self.running.move_to_end(sequence.id)
        for sequence in prompts:
            if budget < 1 and planned:
                break
            left = sequence.prompt_pages - sequence.prefilled
            rows = min(left, max(1, budget))
            # The first denoising step rides along with the prompt's last block.
            denoise = rows == left and (budget > rows or not planned)
            planned.append(PlannedRows(sequence, sequence.prefilled, rows, False, denoise))
            budget -= rows + denoise
        self._lay_pages(planned)
        return planned

    def _lay_pages(self, planned: Iterable[PlannedRows]) -> None:
        for rows in planned:
            sequence = rows.sequence
            committed = len(sequence.tokens) // sequence.block_length
            needed = rows.first_prompt_row + rows.prompt_rows
            if rows.denoise:
                needed = sequence.prompt_pages + committed + 1
            while len(sequence.pages) < needed:
                sequence.pages.append(self.cache.allocate())
