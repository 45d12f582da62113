"""Who is in a pass: prompts in pieces beside denoising, so that neither waits for the other."""

from __future__ import annotations

import torch

from mineru_diffusion.diffusion.unmasking import ConfidenceThreshold
from mineru_diffusion.engine.cache import PagedCache
from mineru_diffusion.engine.scheduler import Planned, Scheduler
from mineru_diffusion.engine.sequence import Sequence

BLOCK = 8


def scheduler(rows: int, pages: int = 1000) -> Scheduler:
    cache = PagedCache(
        layers=1,
        kv_heads=1,
        head_dim=4,
        page_tokens=BLOCK,
        max_pages=pages,
        dtype=torch.float32,
        device=torch.device("cpu"),
    )
    return Scheduler(cache, rows, rows * BLOCK)


def sequence(number: int, prompt: int) -> Sequence:
    return Sequence(
        id=number,
        prompt_ids=[1] * prompt,
        block_length=BLOCK,
        mask_id=0,
        policy=ConfidenceThreshold(0.9),
        max_tokens=400,
        stop_ids=frozenset(),
    )


def run(planned: list[Planned], *, finish_blocks: bool) -> None:
    """What a pass does to its sequences."""
    for part in planned:
        part.sequence.cached = part.known
        if part.asks and finish_blocks:
            part.sequence.tokens += [5] * BLOCK


def test_a_long_prompt_is_laid_in_pieces_beside_denoising() -> None:
    for finish_blocks in (False, True):
        plans = scheduler(rows=8)
        short = [sequence(i, prompt=BLOCK) for i in range(6)]
        plans.waiting.extend(short)
        plans.admit()
        while any(s.pending > BLOCK or s.cached == 0 for s in short):
            run(plans.plan(), finish_blocks=False)
        long = sequence(99, prompt=40 * BLOCK + 3)
        plans.waiting.append(long)
        assert plans.admit() == [long]
        idle = dict.fromkeys(range(6), 0)
        passes = 0
        while long.cached < len(long.prompt_ids):
            before = long.cached
            planned = plans.plan()
            assert sum(part.stop - part.start for part in planned) <= plans.budget
            run(planned, finish_blocks=finish_blocks)
            passes += 1
            # The prompt moves in every pass, and ends at a block's end each time.
            assert long.cached > before
            assert (long.cached + long.pad) % BLOCK == 0
            there = {part.sequence.id for part in planned if part.asks}
            idle = {i: 0 if i in there else waited + 1 for i, waited in idle.items()}
            assert max(idle.values()) <= 3
        assert passes > 5


def test_the_first_step_rides_with_the_end_of_the_prompt() -> None:
    plans = scheduler(rows=8)
    plans.waiting.append(sequence(0, prompt=3 * BLOCK))
    plans.admit()
    (part,) = plans.plan()
    assert (part.start, part.known, part.stop, part.asks) == (0, 3 * BLOCK, 4 * BLOCK, True)


def test_a_finished_block_rides_with_the_next_ones_first_step() -> None:
    plans = scheduler(rows=8)
    plans.waiting.append(sequence(0, prompt=BLOCK))
    plans.admit()
    run(plans.plan(), finish_blocks=True)
    (part,) = plans.plan()
    assert (part.start, part.known, part.stop, part.asks) == (BLOCK, 2 * BLOCK, 3 * BLOCK, True)


def test_admission_keeps_to_rows_and_pages() -> None:
    few_rows = scheduler(rows=2)
    few_rows.waiting.extend(sequence(i, prompt=BLOCK) for i in range(5))
    assert [s.id for s in few_rows.admit()] == [0, 1]
    # Each needs three pages for its prompt and first step, and one is kept for each that runs.
    few_pages = scheduler(rows=8, pages=7)
    few_pages.waiting.extend(sequence(i, prompt=2 * BLOCK) for i in range(5))
    assert [s.id for s in few_pages.admit()] == [0, 1]
    assert few_pages.admit() == []
