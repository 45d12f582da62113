from __future__ import annotations

import pytest
import torch
from torch import nn

from mineru_diffusion.training.config import OptimizerConfig
from mineru_diffusion.training.optim import Average, BatchedMuon, orthogonalise, schedule


@pytest.mark.parametrize("shape", [(3, 8, 20), (2, 20, 8), (1, 16, 16)])
def test_orthogonalise_levels_the_singular_values(shape: tuple[int, int, int]) -> None:
    matrices = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    values = torch.linalg.svdvals(orthogonalise(matrices))
    assert values.min() > 0.3
    assert values.max() < 1.3
    # Directions stay.
    left, _, right = torch.linalg.svd(matrices, full_matrices=False)
    expected = left @ right
    cosine = nn.functional.cosine_similarity(orthogonalise(matrices).flatten(1), expected.flatten(1))
    assert cosine.min() > 0.95


def test_muon_solves_least_squares() -> None:
    generator = torch.Generator().manual_seed(0)
    x, target = torch.randn((64, 12), generator=generator), torch.randn((12, 12), generator=generator)
    weight = nn.Parameter(torch.zeros(12, 12))
    optimizer = BatchedMuon([weight], lr=0.05)
    first = last = 0.0
    for step in range(150):
        loss = (x @ weight - x @ target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        first, last = (loss.item(), loss.item()) if step == 0 else (first, loss.item())
    assert last < first / 15


def test_the_schedule_warms_up_stays_and_decays() -> None:
    config = OptimizerConfig(warmup_steps=10, decay_steps=20)
    rates = [schedule(step, config, 100) for step in range(100)]
    assert rates[0] == pytest.approx(0.1)
    assert rates[10:80] == [1.0] * 70
    assert rates[90] == pytest.approx(0.5)
    assert rates[99] == pytest.approx(0.05)


def test_average_follows_slowly() -> None:
    module = nn.Linear(2, 2)
    average = Average(module, 0.9)
    with torch.no_grad():
        module.weight.add_(1.0)
    start = average.shadow["weight"].clone()
    for _ in range(100):
        average.update(module)
    assert torch.allclose(average.shadow["weight"], module.weight, atol=1e-2)
    assert not torch.allclose(average.shadow["weight"], start)
