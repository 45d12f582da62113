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
    """

    confidence: Tensor
    masked: Tensor
    step: Tensor
    entropy: Tensor | None = None


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


def _or_best(chosen: Tensor, block: BlockStatistics) -> Tensor:
    """The chosen positions; the most confident one of each row that has masked positions but none chosen."""
    return chosen | (_best(block.step * 0, block.confidence, block.masked) & ~chosen.any(-1, keepdim=True))


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
        return _or_best(block.masked & (block.confidence > self.tau), block)


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
class PrefixConfidence:
    """All positions with c > tau; also those of the longest run from the block's left end whose undecided members' c
    have a product > p; the best one if there is none. (Ours.)

    A reader that decides tokens in parallel errs mostly about places: it puts a token behind a gap whose length it does
    not know. A token whose left is settled has no such doubt, and less confidence is enough for it.

    Attributes:
        tau: confidence that is enough anywhere, in [0, 1].
        joint: p in [0, 1]; 1: `ConfidenceThreshold(tau)`.
    """

    tau: float
    joint: float
    needs_entropy = False

    def __post_init__(self) -> None:
        for value in (self.tau, self.joint):
            if not 0.0 <= value <= 1.0:
                raise ValueError(f"thresholds must lie in [0, 1], not {value}")

    def select(self, block: BlockStatistics) -> Tensor:
        run = block.confidence.masked_fill(~block.masked, 1.0).cumprod(dim=-1) > self.joint
        return _or_best(block.masked & (run | (block.confidence > self.tau)), block)


POLICIES = ("threshold", "prefix", "fixed", "factor", "entropy")


def make_policy(
    name: str,
    *,
    threshold: float = 0.95,
    steps: int | None = None,
    factor: float | None = None,
    gamma: float | None = None,
    joint: float | None = None,
    block_length: int = 32,
) -> UnmaskingPolicy:
    """A policy by name; parameters that are None take a middle value.

    Raises:
        ValueError: an unknown name or a parameter out of range.
    """
    if name == "threshold":
        return ConfidenceThreshold(threshold)
    if name == "prefix":
        return PrefixConfidence(threshold, 0.7 if joint is None else joint)
    if name == "fixed":
        return FixedSchedule(block_length if steps is None else steps)
    if name == "factor":
        return ParallelFactor(1.0 if factor is None else factor)
    if name == "entropy":
        return EntropyBound(0.1 if gamma is None else gamma)
    raise ValueError(f"unknown unmasking policy {name!r}; known: {', '.join(POLICIES)}")
