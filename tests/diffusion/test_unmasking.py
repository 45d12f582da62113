from __future__ import annotations

import math
from typing import get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mineru_diffusion.diffusion.unmasking import (
    POLICIES,
    BlockStatistics,
    ConfidenceThreshold,
    EntropyBound,
    FixedSchedule,
    ParallelFactor,
    PrefixConfidence,
    UnmaskingPolicy,
    make_policy,
)
from mineru_diffusion.engine.types import Policy

policies = st.one_of(
    st.floats(0.0, 1.0).map(ConfidenceThreshold),
    st.integers(1, 40).map(FixedSchedule),
    st.floats(0.01, 50.0).map(ParallelFactor),
    st.floats(0.0, 20.0).map(EntropyBound),
    st.builds(PrefixConfidence, st.floats(0.0, 1.0), st.floats(0.0, 1.0)),
)


@st.composite
def blocks(draw: st.DrawFn) -> BlockStatistics:
    rows, length = draw(st.integers(1, 4)), draw(st.integers(1, 33))

    def table(values: st.SearchStrategy[float]) -> torch.Tensor:
        return torch.tensor(
            draw(st.lists(st.lists(values, min_size=length, max_size=length), min_size=rows, max_size=rows))
        )

    return BlockStatistics(
        # Coarse steps, so that ties are common.
        confidence=table(st.integers(0, 20).map(lambda i: i / 20)),
        masked=table(st.booleans()),
        step=torch.tensor(draw(st.lists(st.integers(0, 40), min_size=rows, max_size=rows))),
        entropy=table(st.integers(0, 20).map(lambda i: i / 5)).float(),
    )


@given(policies, blocks())
def test_makes_progress_and_never_touches_a_decided_position(policy: UnmaskingPolicy, block: BlockStatistics) -> None:
    chosen = policy.select(block)
    assert chosen.shape == block.masked.shape
    assert not (chosen & ~block.masked).any()
    assert torch.equal(chosen.any(-1), block.masked.any(-1))


@given(policies, blocks())
def test_rows_do_not_influence_each_other(policy: UnmaskingPolicy, block: BlockStatistics) -> None:
    together = policy.select(block)
    for row in range(block.masked.shape[0]):
        pick = slice(row, row + 1)
        assert block.entropy is not None
        alone = BlockStatistics(block.confidence[pick], block.masked[pick], block.step[pick], block.entropy[pick])
        assert torch.equal(policy.select(alone), together[pick])


@given(policies, st.integers(1, 33), st.integers(0, 1000))
def test_every_block_ends(policy: UnmaskingPolicy, length: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    masked = torch.ones((1, length), dtype=torch.bool)
    steps = 0
    while masked.any():
        confidence = torch.rand((1, length), generator=generator)
        masked &= ~policy.select(BlockStatistics(confidence, masked, torch.tensor([steps]), 1 - confidence))
        steps += 1
    assert steps <= length
    if isinstance(policy, FixedSchedule):
        assert steps == min(policy.steps, length)


def statistics(confidence: list[float], masked: list[bool] | None = None, step: int = 0) -> BlockStatistics:
    row = torch.tensor([confidence])
    mask = torch.ones_like(row, dtype=torch.bool) if masked is None else torch.tensor([masked])
    return BlockStatistics(row, mask, torch.tensor([step]), -row.clamp_min(1e-9).log())


def test_threshold_is_strict() -> None:
    assert ConfidenceThreshold(0.5).select(statistics([0.5, 0.6, 0.4])).tolist() == [[False, True, False]]
    assert ConfidenceThreshold(1.0).select(statistics([1.0, 0.6, 1.0])).tolist() == [[True, False, False]]


def test_fixed_schedule_gives_the_remainder_first() -> None:
    policy = FixedSchedule(3)
    assert policy.select(statistics([0.1] * 8, step=0)).sum() == 3
    assert policy.select(statistics([0.1] * 8, step=1)).sum() == 3
    assert policy.select(statistics([0.1] * 8, step=2)).sum() == 2


def test_fixed_schedule_never_takes_more_than_are_masked() -> None:
    chosen = FixedSchedule(1).select(statistics([0.9, 0.8, 0.7], [False, True, False]))
    assert chosen.tolist() == [[False, True, False]]


def test_parallel_factor_follows_its_inequality() -> None:
    # (n + 1)(1 - c_(n)): 2 * 0.01, 3 * 0.05, 4 * 0.2, 5 * 0.5
    confidences = [0.99, 0.95, 0.8, 0.5]
    for factor, count in ((0.01, 1), (0.1, 1), (0.2, 2), (0.9, 3), (2.6, 4)):
        assert ParallelFactor(factor).select(statistics(confidences)).sum() == count


def test_prefix_needs_less_confidence_where_the_left_is_settled() -> None:
    confidences = [0.9, 0.9, 0.96, 0.9, 0.5, 0.97]
    # The run: 0.9, 0.81, 0.78, 0.70, 0.35; the last one by itself.
    for joint, run in ((0.95, 0), (0.85, 1), (0.8, 2), (0.75, 3), (0.6, 4), (0.36, 4), (0.3, 6)):
        expected = [i < run or confidence > 0.95 for i, confidence in enumerate(confidences)]
        assert PrefixConfidence(0.95, joint).select(statistics(confidences)).tolist() == [expected]
    decided = statistics(confidences, [False, True, True, True, True, True])
    assert PrefixConfidence(0.95, 0.85).select(decided).tolist() == [[False, True, True, False, False, True]]


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0), blocks())
def test_prefix_decides_at_least_what_the_threshold_does(tau: float, joint: float, block: BlockStatistics) -> None:
    plain, more = ConfidenceThreshold(tau), PrefixConfidence(tau, joint)
    confident = block.masked & (block.confidence > tau)
    assert (more.select(block) | ~confident).all()
    assert torch.equal(PrefixConfidence(tau, 1.0).select(block), plain.select(block))


def test_entropy_bound_sums_all_but_the_largest() -> None:
    entropies = torch.tensor([[0.1, 0.2, 0.4, 3.0]])
    block = BlockStatistics(
        torch.ones_like(entropies), torch.ones((1, 4), dtype=torch.bool), torch.tensor([0]), entropies
    )
    for gamma, count in ((0.0, 1), (0.11, 2), (0.31, 3), (0.69, 3), (0.71, 4)):
        assert EntropyBound(gamma).select(block).sum() == count


@pytest.mark.parametrize(
    ("kind", "bad"),
    [
        (ConfidenceThreshold, 1.5),
        (FixedSchedule, 0),
        (ParallelFactor, 0.0),
        (EntropyBound, -1.0),
    ],
)
def test_parameters_out_of_range(kind: type, bad: float) -> None:
    with pytest.raises(ValueError):
        kind(bad)


@pytest.mark.parametrize("name", POLICIES)
def test_policies_by_name(name: str) -> None:
    policy = make_policy(name, block_length=16)
    assert policy.select(statistics([0.2] * 16)).any()


def test_every_policy_of_a_request_is_there() -> None:
    assert get_args(Policy) == POLICIES


def test_unknown_policy() -> None:
    with pytest.raises(ValueError, match="threshold, prefix, fixed, factor, entropy"):
        make_policy("best")


def test_entropy_is_asked_for() -> None:
    block = BlockStatistics(torch.ones((1, 2)), torch.ones((1, 2), dtype=torch.bool), torch.tensor([0]))
    with pytest.raises(ValueError, match="entropies"):
        EntropyBound(math.inf).select(block)
