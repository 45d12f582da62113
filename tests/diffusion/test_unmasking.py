from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mineru_diffusion.diffusion.unmasking import (
    POLICIES,
    Agreement,
    BlockStatistics,
    ConfidenceThreshold,
    EntropyBound,
    FixedSchedule,
    FrechetProfile,
    ParallelFactor,
    UnmaskingPolicy,
    make_policy,
)

policies = st.one_of(
    st.floats(0.0, 1.0).map(ConfidenceThreshold),
    st.integers(1, 40).map(FixedSchedule),
    st.floats(0.01, 50.0).map(ParallelFactor),
    st.floats(0.0, 20.0).map(EntropyBound),
    st.builds(FrechetProfile, st.floats(0.01, 50.0), st.floats(0.1, 1.0)),
    st.floats(0.0, 1.0).flatmap(lambda tau: st.floats(0.0, tau).map(lambda low: Agreement(tau, low))),
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
        streak=table(st.integers(1, 4)),  # type: ignore[arg-type]
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
        assert block.streak is not None
        alone = BlockStatistics(
            block.confidence[pick], block.masked[pick], block.step[pick], block.entropy[pick], block.streak[pick]
        )
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


def test_profile_follows_its_inequality() -> None:
    # Doubts 0.01, 0.05, 0.2, 0.5: sums with the last one twice 0.02, 0.11, 0.46, 1.26.
    confidences = [0.99, 0.95, 0.8, 0.5]
    for budget, count in ((0.01, 1), (0.1, 1), (0.12, 2), (0.47, 3), (1.0, 3), (1.3, 4)):
        assert FrechetProfile(budget).select(statistics(confidences)).sum() == count


@given(st.floats(0.01, 50.0), st.floats(0.0, 1.0), st.integers(1, 33))
def test_profile_is_the_factor_rule_where_all_are_equal(factor: float, confidence: float, length: int) -> None:
    block = statistics([confidence] * length)
    counts = [int(policy.select(block).sum()) for policy in (FrechetProfile(factor), ParallelFactor(factor))]
    # The two add up in different orders.
    assert abs(counts[0] - counts[1]) <= 1


@given(st.floats(0.01, 50.0), blocks())
def test_profile_decides_at_least_what_the_factor_rule_does(factor: float, block: BlockStatistics) -> None:
    assert (FrechetProfile(factor * 1.001).select(block) | ~ParallelFactor(factor).select(block)).all()


def test_credit_trusts_what_stays() -> None:
    block = statistics([0.9, 0.9, 0.9])
    steady = BlockStatistics(block.confidence, block.masked, block.step, None, torch.tensor([[1, 3, 3]]))
    assert FrechetProfile(0.1, 0.5).select(steady).tolist() == [[False, True, True]]
    assert FrechetProfile(0.1).select(steady).sum() == 1


def test_agreement_takes_repeated_predictions() -> None:
    block = statistics([0.96, 0.8, 0.8, 0.5])
    steady = BlockStatistics(block.confidence, block.masked, block.step, None, torch.tensor([[1, 2, 1, 5]]))
    assert Agreement(0.95, 0.7).select(steady).tolist() == [[True, True, False, False]]
    assert Agreement(0.95, 0.7).select(block).tolist() == [[True, False, False, False]]


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
        (FrechetProfile, 0.0),
    ],
)
def test_parameters_out_of_range(kind: type, bad: float) -> None:
    with pytest.raises(ValueError):
        kind(bad)


@pytest.mark.parametrize("name", POLICIES)
def test_policies_by_name(name: str) -> None:
    policy = make_policy(name, block_length=16)
    assert policy.select(statistics([0.2] * 16)).any()


def test_unknown_policy() -> None:
    with pytest.raises(ValueError, match="threshold, fixed, factor, entropy, profile, credit, agreement"):
        make_policy("best")


def test_entropy_is_asked_for() -> None:
    block = BlockStatistics(torch.ones((1, 2)), torch.ones((1, 2), dtype=torch.bool), torch.tensor([0]))
    with pytest.raises(ValueError, match="entropies"):
        EntropyBound(math.inf).select(block)
