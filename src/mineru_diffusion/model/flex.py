"""FlexAttention (arXiv 2412.05496): compiled on CUDA, where it skips what the mask rules out; elsewhere its plain form,
which computes the same and is for tests.

Shapes: N batch, L queries, S keys, H query heads, K key/value heads, D width of a head.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

TILE = 128
"""Queries and keys of a tile of a sparse mask."""

MAX_FORMS = 32
"""Sizes are dynamic, but those of 1 and those that happen to be equal are compiled anew. Beyond torch's own limit of 8
it would fall back to the plain form without a word, which holds all scores."""


@cache
def _compiled_flex() -> Any:
    limits = torch._dynamo.config
    if hasattr(limits, "recompile_limit"):
        limits.recompile_limit = max(limits.recompile_limit, MAX_FORMS)
    return torch.compile(flex_attention, dynamic=True)


def flex_attend(q_NHLD: Tensor, k_NKSD: Tensor, v_NKSD: Tensor, block_mask: BlockMask) -> Tensor:
    """Attended values [N, H, L, D] under a sparse mask."""
    call = _compiled_flex() if q_NHLD.device.type == "cuda" else flex_attention
    mixed: Tensor = call(q_NHLD, k_NKSD, v_NKSD, block_mask=block_mask, enable_gqa=q_NHLD.shape[1] != k_NKSD.shape[1])
    return mixed


def prefix_mask(visible_NL: Tensor, keys: int) -> BlockMask:
    """The mask of queries that see the first so many of `keys` keys each.

    It is laid out directly, since a prefix touches the first tiles of its row: nothing of size [L, S] is made, and
    nothing waits for the device, so this may be part of a CUDA graph.
    """
    batch, queries = visible_NL.shape
    rows, columns = -(-queries // TILE), -(-keys // TILE)
    most = F.pad(visible_NL, (0, rows * TILE - queries)).view(batch, rows, TILE).amax(dim=-1)
    touched = ((most + TILE - 1) // TILE).to(torch.int32)[:, None]
    tiles = torch.arange(columns, dtype=torch.int32, device=visible_NL.device).expand(batch, 1, rows, columns)

    def rule(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return key < visible_NL[batch, query]

    return BlockMask.from_kv_blocks(
        touched,
        tiles.contiguous(),
        BLOCK_SIZE=TILE,
        mask_mod=rule,
        seq_lengths=(queries, keys),
        compute_q_blocks=False,
    )
