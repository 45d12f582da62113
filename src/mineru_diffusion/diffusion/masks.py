"""Who may see whom: the block-causal masks of prompt, generation and training (BD3-LM, arXiv 2503.09573, section 3.2;
SDAR, arXiv 2510.06303).

All masks are boolean, True where query i (row) may attend to key j (column). `P` is the prompt length, `B` the block
length, `L` a sequence length. One rule makes them all: `visible`, on three whole numbers a position.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor


@dataclass(frozen=True)
class Labels:
    """What the mask rule asks of each position [L].

    Attributes:
        block: number of its block; the prompt's blocks come first.
        stream: 0 for the prompt and clean tokens, 1, 2, ... for the noisy streams.
        document: which of several documents that share a sequence.
    """

    block: Tensor
    stream: Tensor
    document: Tensor

    def dense(self) -> Tensor:
        """The mask [L, L]."""
        query, key = (t[:, None] for t in self.fields()), (t[None, :] for t in self.fields())
        return visible(*query, *key)

    def fields(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.block, self.stream, self.document


def visible(
    query_block: Tensor,
    query_stream: Tensor,
    query_document: Tensor,
    key_block: Tensor,
    key_stream: Tensor,
    key_document: Tensor,
) -> Tensor:
    """May the query see the key? Elementwise, so that a dense mask and a kernel's mask function are one text.

    Inside a document: everyone sees clean blocks before its own, and its own block in its own stream.
    """
    before = (key_stream == 0) & (key_block < query_block)
    own = (key_stream == query_stream) & (key_block == query_block)
    return (query_document == key_document) & (before | own)


def prompt_blocks(prompt_length: int, block_length: int) -> list[tuple[int, int]]:
    """Spans `(start, stop)` of the prompt's blocks. Blocks are aligned to the prompt's END: the short one is first."""
    first = prompt_length % block_length or min(block_length, prompt_length)
    edges = [0, *range(first, prompt_length + 1, block_length)] if prompt_length else [0]
    return list(pairwise(edges))


def block_ids(length: int, prompt_length: int, block_length: int, device: torch.device | None = None) -> Tensor:
    """Block number [L] of each position: floor((i + pad) / B), pad = (-P) mod B, so that generation starts a block."""
    pad = -prompt_length % block_length
    return (torch.arange(length, device=device) + pad) // block_length


def block_causal_mask(length: int, prompt_length: int, block_length: int, device: torch.device | None = None) -> Tensor:
    """[L, L]: j visible to i iff block(j) <= block(i), for a clean sequence whose first `prompt_length` are the prompt.

    The same rule serves the prompt (length = P) and prompt plus generated blocks; with B = 1 it is the causal mask of
    an autoregressive model.
    """
    ids = block_ids(length, prompt_length, block_length, device)
    return ids[None, :] <= ids[:, None]


def causal_labels(length: int, device: torch.device | None = None) -> Labels:
    """Labels of a plain causal sequence: blocks of one token."""
    zeros = torch.zeros(length, dtype=torch.long, device=device)
    return Labels(torch.arange(length, device=device), zeros, zeros)


def two_stream_labels(
    prompt_length: int, blocks: int, block_length: int, draws: int = 1, device: torch.device | None = None
) -> Labels:
    """Labels of `[prompt | clean blocks | noisy blocks (x draws)]`; see `two_stream_mask`."""
    prompt = block_ids(prompt_length, prompt_length, block_length, device)
    first = -(-prompt_length // block_length)
    answer = (first + torch.arange(blocks, device=device)).repeat_interleave(block_length)
    clean = answer[: (blocks - 1) * block_length]
    block = torch.cat((prompt, clean, answer.repeat(draws)))
    stream = torch.zeros_like(block)
    stream[prompt_length + clean.numel() :] = torch.arange(1, draws + 1, device=device).repeat_interleave(
        answer.numel()
    )
    return Labels(block, stream, torch.zeros_like(block))


def two_stream_mask(
    prompt_length: int, blocks: int, block_length: int, draws: int = 1, device: torch.device | None = None
) -> Tensor:
    """Training mask for `[prompt | clean blocks | noisy blocks (x draws)]`.

    A clean position sees the prompt and clean blocks up to its own; a noisy one sees the prompt, clean blocks BEFORE
    its own, and its own noisy block; the draws do not see each other. (BD3-LM, eq. 9 and figure 3, with a prompt.)
    The last clean block would be seen by nobody and is left out.

    Args:
        prompt_length: P; its blocks are aligned to its end.
        blocks: C, number of answer blocks.
        block_length: B.
        draws: number of noisy streams that share the clean one.

    Returns:
        [L, L] with L = P + (C - 1) * B + draws * C * B.
    """
    return two_stream_labels(prompt_length, blocks, block_length, draws, device).dense()
