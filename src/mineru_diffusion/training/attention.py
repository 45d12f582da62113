"""How the training layouts attend: SDPA under a dense mask, document by document, which runs everywhere; or
FlexAttention, which on CUDA is compiled and skips what the mask rules out. Both get their mask from the one rule
`diffusion.masks.visible`.

Shapes: N batch, L positions of all documents, H query heads, K key/value heads, D width of a head.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

from mineru_diffusion.diffusion.masks import Labels, visible
from mineru_diffusion.model.attention import AttentionContext, grouped_sdpa
from mineru_diffusion.model.flex import flex_attend


class DenseAttention:
    """SDPA. Documents stand one after the other and never see each other, so each has a call of its own.

    Args:
        documents: labels of each document; a batch of equal documents has one entry.
    """

    def __init__(self, documents: Sequence[Labels]) -> None:
        self.masks = [labels.dense() for labels in documents]
        self.lengths = [mask.shape[0] for mask in self.masks]

    def attend(self, layer: int, q_NHLD: Tensor, k_NKLD: Tensor, v_NKLD: Tensor) -> Tensor:
        # Norms and rotations come out in float32 under autocast, the values do not.
        q_NHLD, k_NKLD = q_NHLD.to(v_NKLD.dtype), k_NKLD.to(v_NKLD.dtype)
        if len(self.masks) == 1:
            return grouped_sdpa(q_NHLD, k_NKLD, v_NKLD, self.masks[0])
        parts = zip(*(t.split(self.lengths, dim=2) for t in (q_NHLD, k_NKLD, v_NKLD)), self.masks, strict=True)
        return torch.cat([grouped_sdpa(q, k, v, mask) for q, k, v, mask in parts], dim=2)


def joined_labels(documents: Sequence[Labels]) -> Labels:
    """Labels of documents that stand one after the other, numbered."""
    return Labels(
        torch.cat([labels.block for labels in documents]),
        torch.cat([labels.stream for labels in documents]),
        torch.cat([torch.full_like(labels.document, number) for number, labels in enumerate(documents)]),
    )


def block_mask(documents: Sequence[Labels]) -> BlockMask:
    """The sparse mask of all documents together, from the same rule as the dense one."""
    labels = joined_labels(documents)
    fields, device = labels.fields(), labels.block.device

    def rule(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return visible(*(t[query] for t in fields), *(t[key] for t in fields))

    length = labels.block.shape[0]
    return create_block_mask(rule, None, None, length, length, device=device, _compile=device.type == "cuda")


class FlexAttention:
    """FlexAttention under the sparse mask of all documents.

    Args:
        documents: labels of each document, as for `DenseAttention`.
    """

    def __init__(self, documents: Sequence[Labels]) -> None:
        self.mask = block_mask(documents)

    def attend(self, layer: int, q_NHLD: Tensor, k_NKLD: Tensor, v_NKLD: Tensor) -> Tensor:
        return flex_attend(q_NHLD.to(v_NKLD.dtype), k_NKLD.to(v_NKLD.dtype), v_NKLD, self.mask)


class RecordingAttention:
    """Keeps the first head's queries and keys of some layers, for `training.helpers.alignment_loss`."""

    def __init__(self, inner: AttentionContext, layers: tuple[int, ...]) -> None:
        self.inner = inner
        self.layers = layers
        self.recorded: dict[int, tuple[Tensor, Tensor]] = {}

    def attend(self, layer: int, q_NHLD: Tensor, k_NKLD: Tensor, v_NKLD: Tensor) -> Tensor:
        # With activation checkpointing a layer runs twice; what the loss was computed from is the first.
        if layer in self.layers and layer not in self.recorded:
            self.recorded[layer] = (q_NHLD[:, 0], k_NKLD[:, 0])
        return self.inner.attend(layer, q_NHLD, k_NKLD, v_NKLD)


def make_attention(documents: Sequence[Labels], *, flex: bool) -> DenseAttention | FlexAttention:
    """The attention of these documents."""
    return FlexAttention(documents) if flex else DenseAttention(documents)
