"""Rotary position embeddings (arXiv 2104.09864). Frequencies are computed from the configuration on demand instead
of living in a buffer: a non-persistent buffer is left uninitialised by loaders that build on the meta device.

Shapes: N batch, L positions, H heads, D width of a head, S patches.
"""

from __future__ import annotations

import torch
from torch import Tensor


def rope_frequencies(width: int, theta: float, device: torch.device | None = None) -> Tensor:
    """Angular frequencies theta^(-2i/width), i = 0 .. width/2 - 1, float32."""
    exponents = torch.arange(0, width, 2, dtype=torch.float32, device=device) / width
    return 1.0 / torch.pow(theta, exponents)


def rope_1d(position_ids_NL: Tensor, head_dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """Cosine and sine [N, L, D] in float32 for 1-D positions."""
    angles = position_ids_NL[..., None].float() * rope_frequencies(head_dim, theta, position_ids_NL.device)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


def rope_2d(positions_S2: Tensor, head_dim: int, theta: float = 10000.0) -> tuple[Tensor, Tensor]:
    """Cosine and sine [S, D] in float32 for patch rows and columns: half the frequencies turn with each."""
    frequencies = rope_frequencies(head_dim // 2, theta, positions_S2.device)
    angles = (positions_S2[..., None].float() * frequencies).flatten(1)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


def rotate_half(x: Tensor) -> Tensor:
    """(x1, x2) -> (-x2, x1), halves of the last dimension."""
    x1, x2 = x.chunk(2, dim=-1)
    return torch.cat((-x2, x1), dim=-1)


def apply_rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the last dimension of `x`; `cos` and `sin` must broadcast to it."""
    return x * cos + rotate_half(x) * sin
