"""The vision tower computes the same with and without gradients, where it saves memory."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from mineru_diffusion.model.configuration import MinerUDiffusionVisionConfig
from mineru_diffusion.model.vision import VisionMLP, VisionTower

CONFIG = MinerUDiffusionVisionConfig(
    depth=2, embed_dim=32, num_heads=2, mlp_ratio=4, patch_size=4, temporal_patch_size=2, in_channels=3
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_without_gradients_the_numbers_are_the_same(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    tower = VisionTower(CONFIG).to(dtype)
    pixels, grid = torch.randn(4 * 6 + 2 * 2, 3 * 2 * 4 * 4, dtype=dtype), [(1, 4, 6), (1, 2, 2)]
    given = pixels.clone()
    expected = tower(pixels, grid)
    assert expected.requires_grad
    with torch.no_grad():
        assert torch.equal(tower(pixels, grid), expected)
    with torch.inference_mode():
        assert torch.equal(tower(pixels, grid), expected)
    assert torch.equal(pixels, given)


def test_the_mlp_is_the_quick_gelu_between_two_layers() -> None:
    torch.manual_seed(0)
    mlp = VisionMLP(CONFIG)
    x = torch.randn(5, 32)

    def by_hand(x: Tensor) -> Tensor:
        hidden = x @ mlp.fc1.weight.T + mlp.fc1.bias
        return (hidden / (1 + torch.exp(-1.702 * hidden))) @ mlp.fc2.weight.T + mlp.fc2.bias

    with torch.no_grad():
        torch.testing.assert_close(mlp(x), by_hand(x))
    torch.testing.assert_close(mlp(x), by_hand(x))
