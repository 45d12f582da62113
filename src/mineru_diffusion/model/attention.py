"""Where the decoder's attention gets its keys from. The layers know nothing of masks or caches: they call an
`AttentionContext`, and training, plain evaluation and the engine each bring their own.

Shapes: N batch or rows, L positions, S keys, H query heads, K key/value heads, D width of a head.
"""

from __future__ import annotations

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor


class AttentionContext(Protocol):
    """Mixes the values of all positions that each query may see."""

    def attend(self, layer: int, q_NHLD: Tensor, k_NKLD: Tensor, v_NKLD: Tensor) -> Tensor:
        """Return the attended values [N, H, L, D] of `layer`; q and k already carry their positions."""
        ...


def grouped_sdpa(q_NHLD: Tensor, k_NKSD: Tensor, v_NKSD: Tensor, mask: Tensor | None) -> Tensor:
    """Scaled dot-product attention with fewer key heads than query heads (GQA, arXiv 2305.13245).

    Args:
        mask: boolean (True: may attend) or additive, broadcastable to [N, H, L, S]; None: everything is visible.
    """
    groups = q_NHLD.shape[1] // k_NKSD.shape[1]
    if groups > 1:
        k_NKSD = k_NKSD.repeat_interleave(groups, dim=1)
        v_NKSD = v_NKSD.repeat_interleave(groups, dim=1)
    return F.scaled_dot_product_attention(q_NHLD, k_NKSD, v_NKSD, attn_mask=mask)


class MaskedAttention:
    """Attention among the positions of one call under an explicit mask; no cache.

    Args:
        mask: boolean, broadcastable to [N, 1, L, L]; True where row i may attend to column j. None: all visible.
    """

    def __init__(self, mask: Tensor | None) -> None:
        if mask is not None and mask.dtype != torch.bool:
            raise TypeError(f"the attention mask must be boolean, not {mask.dtype}")
        self.mask = mask

    def attend(self, layer: int, q_NHLD: Tensor, k_NKLD: Tensor, v_NKLD: Tensor) -> Tensor:
        return grouped_sdpa(q_NHLD, k_NKLD, v_NKLD, self.mask)
