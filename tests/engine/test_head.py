"""The vocabulary head in pieces against all logits at once."""

from __future__ import annotations

import pytest
import torch

from mineru_diffusion.engine import head as head_module
from mineru_diffusion.engine.head import predict

MASK = 3


@pytest.mark.parametrize("rows_at_once", [1, 4, 100])
def test_pieces_give_what_the_whole_softmax_does(rows_at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    layer = torch.nn.Linear(12, 50, bias=False)
    hidden = 3 * torch.randn(11, 12)
    seen: list[int] = []
    layer.register_forward_hook(lambda module, inputs, output: seen.append(output.shape[0]))
    monkeypatch.setattr(head_module, "CHUNK_ELEMENTS", rows_at_once * 50)
    with torch.no_grad():
        found = predict(layer, hidden, mask_id=MASK, temperatures=[(0.0, None)] * 2, counts=[4, 7], entropy=True)
        probabilities = torch.softmax(hidden @ layer.weight.T, dim=-1)
    assert max(seen) <= rows_at_once
    assert sum(seen) == 11
    entropy = -(probabilities * probabilities.log()).sum(dim=-1)
    # The mask keeps its share of the probability, but is never said.
    probabilities[:, MASK] = 0
    confidence, token = probabilities.max(dim=-1)
    assert torch.equal(found.token, token)
    torch.testing.assert_close(found.confidence, confidence)
    assert found.entropy is not None
    torch.testing.assert_close(found.entropy, entropy)
