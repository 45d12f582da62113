"""FlexAttention and SDPA attend by one rule."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention.flex_attention import create_mask

from mineru_diffusion.diffusion.masks import Labels, causal_labels, two_stream_labels
from mineru_diffusion.training.attention import (
    DenseAttention,
    FlexAttention,
    RecordingAttention,
    block_mask,
    joined_labels,
)

documents = st.lists(
    st.one_of(
        st.builds(causal_labels, st.integers(1, 12)),
        st.builds(two_stream_labels, st.integers(1, 9), st.integers(1, 3), st.integers(1, 4), st.integers(1, 2)),
    ),
    min_size=1,
    max_size=3,
)


@settings(max_examples=20)
@given(documents)
def test_the_kernel_rule_is_the_dense_mask(labels: list[Labels]) -> None:
    dense = joined_labels(labels).dense()
    length = dense.shape[0]
    assert torch.equal(create_mask(block_mask(labels).mask_mod, 1, 1, length, length, device="cpu")[0, 0], dense)
    apart = torch.block_diag(*(document.dense().float() for document in labels)).bool()
    assert torch.equal(dense, apart)


@pytest.mark.filterwarnings("ignore:flex_attention called without")
def test_flex_and_sdpa_give_the_same_values() -> None:
    labels = [two_stream_labels(5, 3, 4, 2), causal_labels(9)]
    length = joined_labels(labels).block.shape[0]
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn((1, heads, length, 16), generator=generator) for heads in (4, 2, 2))
    dense, flex = (context.attend(0, q, k, v) for context in (DenseAttention(labels), FlexAttention(labels)))
    torch.testing.assert_close(flex, dense, atol=1e-5, rtol=1e-4)


def test_recording_keeps_the_first_pass_of_the_wanted_layers() -> None:
    recording = RecordingAttention(DenseAttention([causal_labels(3)]), (1,))
    for layer in (0, 1, 1):
        q = torch.full((1, 2, 3, 4), float(layer + len(recording.recorded)))
        recording.attend(layer, q, q, q)
    assert list(recording.recorded) == [1]
    assert float(recording.recorded[1][0].mean()) == 1.0
