"""The forward process: which answer tokens are masked in training, and how much each counts.

Shapes: N samples, L answer length (a multiple of the block length B), C = L / B blocks, R noise draws.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Weighting = Literal["mean", "inverse_t"]


@dataclass(frozen=True)
class NoiseConfig:
    """How masks are drawn.

    Attributes:
        block_length: B.
        eps: smallest noise level; t ~ U(eps, 1].
        weighting: `mean` averages over masked positions (MinerU-Diffusion, arXiv 2603.22458); `inverse_t` weights each
            by 1/t, the exact bound of the log-linear schedule (BD3-LM, arXiv 2503.09573, eq. 8).
        ordered_share: share of blocks whose masked positions are a suffix instead of a uniform subset: confident
            decoding of a line of text uncovers a block roughly from left to right, and this trains for those states.
        full_share: share of blocks that are masked completely, the state in which every block starts.
        complementary: draws come in pairs, the second of which hides what the first shows, so that every token is a
            target once a pair (LaViDa, arXiv 2505.16839, section 3.2).
    """

    block_length: int
    eps: float = 1e-3
    weighting: Weighting = "mean"
    ordered_share: float = 0.0
    full_share: float = 0.0
    complementary: bool = False

    def __post_init__(self) -> None:
        if self.weighting == "inverse_t" and (self.ordered_share or self.full_share):
            raise ValueError("inverse_t weighting needs uniform masks: set ordered_share and full_share to 0")


def draw_masks(
    shape: tuple[int, int], config: NoiseConfig, generator: torch.Generator | None = None
) -> tuple[Tensor, Tensor]:
    """Draw a noise level per block, t ~ U(eps, 1] (U(eps, 1 - eps] where the complement is weighted by its level too),
    and mask each of its positions with probability t.

    With `mean` weighting every block has at least one masked position (the last one is masked if the draw left none),
    as every denoising step sees at least one. `inverse_t` is an unbiased estimate only without that.

    Returns:
        masked [N, L] boolean, and t [N, L] float32, the level of each position's block.
    """
    samples, length = shape
    blocks, remainder = divmod(length, config.block_length)
    if remainder:
        raise ValueError(f"the answer's length {length} is not a multiple of the block length {config.block_length}")
    size = (samples, blocks, config.block_length)
    # The complement of a draw at level t is one at level 1 - t, which must not reach 0 either.
    span = 1.0 - config.eps * (2.0 if config.complementary and config.weighting == "inverse_t" else 1.0)
    highest = span + config.eps
    levels = highest - torch.rand((samples, blocks, 1), generator=generator) * span
    kinds = torch.rand((samples, blocks, 1), generator=generator)
    levels = torch.where(kinds < config.full_share, torch.ones_like(levels), levels)
    masked = torch.rand(size, generator=generator) < levels
    # A suffix of expected length t * B.
    keep = ((1.0 - levels) * config.block_length + torch.rand(levels.shape, generator=generator)).floor()
    ordered = torch.arange(config.block_length) >= keep
    in_order = (kinds >= config.full_share) & (kinds < config.full_share + config.ordered_share)
    masked = torch.where(in_order, ordered.expand(size), masked)
    if config.weighting == "mean":
        masked[..., -1] |= ~masked.any(dim=-1)
    return masked.reshape(samples, length), levels.expand(size).reshape(samples, length)


def draw_streams(
    shape: tuple[int, int], config: NoiseConfig, draws: int, generator: torch.Generator | None = None
) -> tuple[Tensor, Tensor]:
    """Masks and levels of `draws` noisy streams; with `complementary` every second one is its neighbour's complement.

    Returns:
        masked [N, R, L] boolean and levels [N, R, L] float32.

    Raises:
        ValueError: an odd number of complementary draws.
    """
    if not config.complementary:
        drawn = [draw_masks(shape, config, generator) for _ in range(draws)]
    elif draws % 2:
        raise ValueError(f"complementary masks come in pairs: draws must be even, not {draws}")
    else:
        drawn = []
        for _ in range(draws // 2):
            masked, levels = draw_masks(shape, config, generator)
            drawn += [(masked, levels), (~masked, 1.0 - levels)]
    return torch.stack([m for m, _ in drawn], dim=1), torch.stack([t for _, t in drawn], dim=1)


def token_weights(masked: Tensor, levels: Tensor, weighting: Weighting) -> Tensor:
    """Weight [N, L] of each position's cross-entropy; 0 where nothing is masked. Normalisation is the caller's."""
    weights = masked.float()
    if weighting == "inverse_t":
        weights = weights / levels.clamp_min(1e-6)
    return weights
