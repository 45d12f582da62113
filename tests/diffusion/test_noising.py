from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mineru_diffusion.diffusion.noising import NoiseConfig, draw_masks, draw_streams, token_weights


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@given(
    st.integers(1, 5), st.integers(1, 4), st.integers(1, 9), st.floats(0, 0.5), st.floats(0, 0.5), st.integers(0, 99)
)
def test_every_block_has_a_target(n: int, blocks: int, length: int, ordered: float, full: float, seed: int) -> None:
    config = NoiseConfig(length, ordered_share=ordered, full_share=full)
    masked, levels = draw_masks((n, blocks * length), config, generator(seed))
    assert masked.view(n, blocks, length).any(-1).all()
    assert ((levels > 0) & (levels <= 1)).all()
    assert (levels.view(n, blocks, length) == levels.view(n, blocks, length)[..., :1]).all()


def test_the_masked_share_follows_the_level() -> None:
    masked, levels = draw_masks((4000, 64), NoiseConfig(64), generator())
    for low, high in ((0.1, 0.2), (0.4, 0.5), (0.8, 0.9)):
        rows = (levels[:, 0] > low) & (levels[:, 0] <= high)
        assert masked[rows].float().mean() == pytest.approx((low + high) / 2, abs=0.02)


def test_ordered_blocks_are_suffixes() -> None:
    masked, _ = draw_masks((500, 16), NoiseConfig(16, ordered_share=1.0), generator())
    steps = masked.long().diff(dim=-1)
    assert (steps >= 0).all()
    assert 0.4 < masked.float().mean() < 0.6


def test_full_blocks_are_full() -> None:
    masked, levels = draw_masks((50, 16), NoiseConfig(16, full_share=1.0), generator())
    assert masked.all()
    assert (levels == 1).all()


def test_length_must_be_whole_blocks() -> None:
    with pytest.raises(ValueError, match="multiple"):
        draw_masks((1, 10), NoiseConfig(4))


def test_complementary_draws_make_each_token_a_target_once_a_pair() -> None:
    config = NoiseConfig(8, ordered_share=0.3, full_share=0.1, complementary=True)
    masked, levels = draw_streams((20, 32), config, 4, generator())
    assert torch.equal(masked[:, 0::2], ~masked[:, 1::2])
    assert torch.allclose(levels[:, 0::2] + levels[:, 1::2], torch.ones(()))
    assert not torch.equal(masked[:, 0], masked[:, 2])
    with pytest.raises(ValueError, match="even"):
        draw_streams((1, 8), config, 3)


def test_independent_draws_are_those_of_one_at_a_time() -> None:
    config = NoiseConfig(8, ordered_share=0.3)
    together, _ = draw_streams((3, 16), config, 2, generator())
    source = generator()
    for draw in range(2):
        assert torch.equal(together[:, draw], draw_masks((3, 16), config, source)[0])


def test_inverse_t_is_unbiased() -> None:
    """The expected weight of every position is 1 (BD3-LM, eq. 8), the last one included."""
    masked, levels = draw_masks((20000, 8), NoiseConfig(8, eps=0.05, weighting="inverse_t"), generator())
    for position in token_weights(masked, levels, "inverse_t").mean(dim=0).tolist():
        assert position == pytest.approx(1.0, abs=0.08)
    assert torch.equal(token_weights(masked, levels, "mean"), masked.float())


def test_inverse_t_is_unbiased_for_complements_too() -> None:
    config = NoiseConfig(8, eps=0.05, weighting="inverse_t", complementary=True)
    masked, levels = draw_streams((20000, 8), config, 2, generator())
    assert levels.min() > 0.049
    means = token_weights(masked.flatten(0, 1), levels.flatten(0, 1), "inverse_t").view_as(levels).mean(dim=0)
    assert torch.allclose(means, torch.ones_like(means), atol=0.08)


def test_inverse_t_needs_uniform_masks() -> None:
    with pytest.raises(ValueError, match="uniform"):
        NoiseConfig(8, weighting="inverse_t", ordered_share=0.4)
