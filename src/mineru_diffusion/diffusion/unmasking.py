"""Unmasking policies: which masked positions of a block become tokens after a denoising step.

A policy only ever chooses among masked positions, and always at least one of each row that has any, so every block
ends after at most B steps.

Shapes: R rows (blocks), B block length. c is the probability of each position's chosen token, H its entropy in nats.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


@dataclass(frozen=True)
class BlockStatistics:
    """What one forward pass says about R blocks.

    Attributes:
        confidence: c [R, B] float32; values at decided positions are ignored.
        masked: True where a position is still undecided [R, B].
        step: denoising steps that each block has had before this one [R] int64.
        entropy: H [R, B] float32, only present for policies with `needs_entropy`.
        streak: for how many successive steps of its block, this one included, each position's prediction has been the
            same [R, B] int64; None counts as 1 everywhere.
    """

    confidence: Tensor
    masked: Tensor
    step: Tensor
    entropy: Tensor | None = None
    streak: Tensor | None = None


class UnmaskingPolicy(Protocol):
    """Chooses the positions to decide."""

    @property
    def needs_entropy(self) -> bool:
        """Whether `BlockStatistics.entropy` must be there."""
        ...

    def select(self, block: BlockStatistics) -> Tensor:
        """Positions to decide now, boolean [R, B]."""
        ...


def _ranks(score: Tensor, masked: Tensor) -> Tensor:
    """Rank [R, B] of each position by falling score among the masked ones (0 is best; ties by position)."""
    order = score.masked_fill(~masked, -torch.inf).argsort(dim=-1, descending=True, stable=True)
    ranks = torch.empty_like(order)
    return ranks.scatter_(-1, order, torch.arange(score.shape[-1], device=score.device).expand_as(order))


def _best(count: Tensor, score: Tensor, masked: Tensor) -> Tensor:
    """The `count` [R] best masked positions of each row, at least one where any is left, never a decided one."""
    wanted = count.clamp(min=1)[:, None]
    return masked & (_ranks(score, masked) < wanted)


@dataclass(frozen=True)
class ConfidenceThreshold:
    """All positions with c > tau; the best one if there is none. (MinerU-Diffusion, arXiv 2603.22458; SDAR, arXiv
    2510.06303, "dynamic" decoding.) The comparison is strict, so tau = 1 decides one token a step.

    Attributes:
        tau: confidence threshold in [0, 1].
    """

    tau: float
    needs_entropy = False

    def __post_init__(self) -> None:
        if not 0.0 <= self.tau <= 1.0:
            raise ValueError(f"the threshold must lie in [0, 1], not {self.tau}")

    def select(self, block: BlockStatistics) -> Tensor:
        above = block.masked & (block.confidence > self.tau)
        return above | (_best(block.step * 0, block.confidence, block.masked) & ~above.any(-1, keepdim=True))


@dataclass(frozen=True)
class FixedSchedule:
    """The B // steps most confident positions, one more in the first B % steps steps. (LLaDA, arXiv 2502.09992, with
    low-confidence remasking; SDAR "static".) Never more than are masked; at the end of the schedule whatever is left.

    Attributes:
        steps: denoising steps a block.
    """

    steps: int
    needs_entropy = False

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"a schedule needs at least one step, not {self.steps}")

    def select(self, block: BlockStatistics) -> Tensor:
        length = block.masked.shape[-1]
        count = length // self.steps + (block.step < length % self.steps).long()
        return _best(count, block.confidence, block.masked)


@dataclass(frozen=True)
class ParallelFactor:
    """The n most confident positions for the largest n with (n + 1)(1 - c_(n)) < f, c sorted downwards. (Fast-dLLM,
    arXiv 2505.22618, section 3.3: under this bound greedy parallel decoding equals greedy sequential decoding.)

    Attributes:
        factor: f > 0.
    """

    factor: float
    needs_entropy = False

    def __post_init__(self) -> None:
        if self.factor <= 0:
            raise ValueError(f"the factor must be positive, not {self.factor}")

    def select(self, block: BlockStatistics) -> Tensor:
        ranked = block.confidence.masked_fill(~block.masked, -torch.inf).sort(dim=-1, descending=True).values
        n = torch.arange(1, ranked.shape[-1] + 1, device=ranked.device)
        holds = (n + 1) * (1.0 - ranked) < self.factor
        count = torch.where(holds, n, 0).amax(dim=-1)
        return _best(count, block.confidence, block.masked)


@dataclass(frozen=True)
class EntropyBound:
    """Sorted by entropy upwards, the longest prefix with sum(H) - max(H) <= gamma. (EB-sampler, arXiv 2505.24857,
    equation 6: the joint dependence error of a set is at most the sum of its entropies without the largest.)

    Attributes:
        gamma: entropy budget in nats, >= 0.
    """

    gamma: float
    needs_entropy = True

    def __post_init__(self) -> None:
        if self.gamma < 0:
            raise ValueError(f"the entropy bound must not be negative, not {self.gamma}")

    def select(self, block: BlockStatistics) -> Tensor:
        if block.entropy is None:
            raise ValueError("EntropyBound needs the entropies")
        ranked = block.entropy.masked_fill(~block.masked, torch.inf).sort(dim=-1).values
        # Sorted upwards, the largest of a prefix is its last member: sum - max is the sum of all before it.
        before = ranked.cumsum(dim=-1) - ranked
        count = ((before <= self.gamma) & ranked.isfinite()).sum(dim=-1)
        return _best(count, -block.entropy, block.masked)


@dataclass(frozen=True)
class FrechetProfile:
    """The n most confident positions for the largest n with sum_{i<=n} (1 - c_(i)) + (1 - c_(n)) < f, c sorted
    downwards. (The idea of Fast-dLLM++, arXiv 2606.02955.) By the Frechet bound the chosen tokens are jointly right
    with probability at least 1 - sum (1 - c_(i)), and any other combination differs somewhere, so it has at most
    1 - c_(n): with f = 1 the chosen combination is the most probable one. Where all c are equal this is
    `ParallelFactor`.

    With `discount` < 1, a position whose prediction has stayed the same for s steps enters with
    (1 - c) * discount^(s - 1): a prediction that survives while its neighbours are being decided is more trustworthy
    than its confidence says. (Ours; the observation is that of CreditDecoding, arXiv 2510.06133.)

    Attributes:
        budget: f > 0.
        discount: in (0, 1].
    """

    budget: float
    discount: float = 1.0
    needs_entropy = False

    def __post_init__(self) -> None:
        if self.budget <= 0:
            raise ValueError(f"the budget must be positive, not {self.budget}")
        if not 0 < self.discount <= 1:
            raise ValueError(f"the discount must lie in (0, 1], not {self.discount}")

    def select(self, block: BlockStatistics) -> Tensor:
        doubt = 1.0 - block.confidence
        if self.discount < 1 and block.streak is not None:
            doubt = doubt * torch.pow(self.discount, (block.streak - 1).clamp_min(0).float())
        ranked = doubt.masked_fill(~block.masked, torch.inf).sort(dim=-1).values
        # Both terms grow with n, so the positions that hold the bound are a prefix.
        count = (ranked.cumsum(dim=-1) + ranked < self.budget).sum(dim=-1)
        return _best(count, -doubt, block.masked)


@dataclass(frozen=True)
class Agreement:
    """All positions with c > tau, and those with c > low whose prediction is that of the step before; the best one if
    there is none. (Tokens that stay the same over successive steps, as in LEAP, arXiv 2605.10980.)

    Attributes:
        tau: confidence that is enough by itself, in [0, 1].
        low: confidence that is enough for a repeated prediction, in [0, tau].
    """

    tau: float
    low: float
    needs_entropy = False

    def __post_init__(self) -> None:
        if not 0.0 <= self.low <= self.tau <= 1.0:
            raise ValueError(f"need 0 <= low <= threshold <= 1, not low {self.low}, threshold {self.tau}")

    def select(self, block: BlockStatistics) -> Tensor:
        above = block.confidence > self.tau
        if block.streak is not None:
            above |= (block.confidence > self.low) & (block.streak > 1)
        above &= block.masked
        return above | (_best(block.step * 0, block.confidence, block.masked) & ~above.any(-1, keepdim=True))


POLICIES = ("threshold", "fixed", "factor", "entropy", "profile", "credit", "agreement")


def make_policy(
    name: str,
    *,
    threshold: float = 0.95,
    steps: int | None = None,
    factor: float | None = None,
    gamma: float | None = None,
    low: float | None = None,
    discount: float | None = None,
    block_length: int = 32,
) -> UnmaskingPolicy:
    """A policy by name; parameters that are None take a middle value.

    Raises:
        ValueError: an unknown name or a parameter out of range.
    """
    if name == "threshold":
        return ConfidenceThreshold(threshold)
    if name == "fixed":
        return FixedSchedule(block_length if steps is None else steps)
    if name == "factor":
        return ParallelFactor(1.0 if factor is None else factor)
    if name == "entropy":
        return EntropyBound(0.1 if gamma is None else gamma)
    if name in ("profile", "credit"):
        default = 1.0 if name == "profile" else 0.5
        return FrechetProfile(1.0 if factor is None else factor, default if discount is None else discount)
    if name == "agreement":
        return Agreement(threshold, min(threshold, 0.7 if low is None else low))
    raise ValueError(f"unknown unmasking policy {name!r}; known: {', '.join(POLICIES)}")
