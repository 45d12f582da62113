from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from mineru_diffusion.diffusion.masks import block_causal_mask, block_ids, causal_labels, prompt_blocks, two_stream_mask

lengths = st.integers(0, 40)
block_lengths = st.integers(1, 9)


@given(lengths, block_lengths)
def test_prompt_blocks_cover_the_prompt_and_only_the_first_is_short(prompt: int, block: int) -> None:
    spans = prompt_blocks(prompt, block)
    assert [i for start, stop in spans for i in range(start, stop)] == list(range(prompt))
    assert all(stop - start == block for start, stop in spans[1:])
    ids = block_ids(prompt, prompt, block).tolist()
    assert all(len({*ids[start:stop]}) == 1 for start, stop in spans)


@given(lengths, st.integers(0, 20), block_lengths)
def test_block_causal_mask_by_its_definition(prompt: int, generated: int, block: int) -> None:
    length, pad = prompt + generated, -prompt % block
    mask = block_causal_mask(length, prompt, block)
    for i in range(length):
        for j in range(length):
            assert bool(mask[i, j]) == ((j + pad) // block <= (i + pad) // block)


@given(st.integers(0, 12), st.integers(1, 4), st.integers(1, 5), st.integers(1, 3))
def test_two_stream_mask_by_its_definition(prompt: int, blocks: int, block: int, draws: int) -> None:
    mask = two_stream_mask(prompt, blocks, block, draws)
    clean = (blocks - 1) * block
    answer = blocks * block
    assert mask.shape == (prompt + clean + draws * answer,) * 2

    def describe(i: int) -> tuple[int, int]:
        """(stream: 0 prompt or clean, d for draw d; block number, prompt blocks negative)"""
        if i < prompt:
            return 0, (i + -prompt % block) // block - 1000
        if i < prompt + clean:
            return 0, (i - prompt) // block
        draw, offset = divmod(i - prompt - clean, answer)
        return draw + 1, offset // block

    for i in range(mask.shape[0]):
        for j in range(mask.shape[0]):
            (stream_i, block_i), (stream_j, block_j) = describe(i), describe(j)
            if stream_i == 0:
                expected = stream_j == 0 and block_j <= block_i
            else:
                expected = (stream_j == 0 and block_j < block_i) or (stream_j == stream_i and block_j == block_i)
            assert bool(mask[i, j]) == expected


@given(st.integers(1, 12), st.integers(1, 4), st.integers(1, 5))
def test_everyone_sees_itself(prompt: int, blocks: int, block: int) -> None:
    assert two_stream_mask(prompt, blocks, block).diagonal().all()
    assert torch.equal(
        two_stream_mask(prompt, blocks, block)[:prompt, :prompt], block_causal_mask(prompt, prompt, block)
    )


@given(st.integers(1, 20), st.integers(0, 20))
def test_blocks_of_one_token_are_causal(length: int, prompt: int) -> None:
    causal = torch.ones((length, length), dtype=torch.bool).tril()
    assert torch.equal(causal_labels(length).dense(), causal)
    assert torch.equal(block_causal_mask(length, min(prompt, length), 1), causal)
