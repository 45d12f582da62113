"""Who may see whom: the block-causal masks of prompt, generation and training (BD3-LM, arXiv 2503.09573, section 3.2;
SDAR, arXiv 2510.06303).

All masks are boolean, True where query i (row) may attend to key j (column). `P` is the prompt length, `B` the block
length, `L` a sequence length.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor


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

    The same rule serves the prompt (length = P) and prompt plus generated blocks.
    """
    ids = block_ids(length, prompt_length, block_length, device)
    return ids[None, :] <= ids[:, None]


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
    prompt_ids = block_ids(prompt_length, prompt_length, block_length, device)
    first = int(prompt_ids[-1]) + 1 if prompt_length else 0
    answer_ids = (first + torch.arange(blocks, device=device)).repeat_interleave(block_length)
    clean_ids = answer_ids[: (blocks - 1) * block_length]
    ids = torch.cat((prompt_ids, clean_ids, answer_ids.repeat(draws)))
    clean = prompt_length + clean_ids.numel()
    stream = torch.zeros(ids.numel(), dtype=torch.long, device=device)
    stream[clean:] = torch.arange(1, draws + 1, device=device).repeat_interleave(answer_ids.numel())
    query, key = ids[:, None], ids[None, :]
    from_clean, to_clean = stream[:, None] == 0, stream[None, :] == 0
    same_stream = stream[:, None] == stream[None, :]
    return (from_clean & to_clean & (key <= query)) | (
        ~from_clean & ((to_clean & (key < query)) | (same_stream & (key == query)))
    )
