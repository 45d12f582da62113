from __future__ import annotations

import pytest
import torch
from torch import nn

from mineru_diffusion.model.precision import WideningLinear, widen_products
from mineru_diffusion.training.export import new_network, new_processor
from tests.tiny import NETWORK


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("bias", [True, False])
def test_gives_the_float32_product_narrowed(dtype: torch.dtype, bias: bool) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(12, 5, bias=bias).to(dtype)
    x = torch.randn(3, 12).to(dtype)
    expected = layer.float()(x.float()).to(dtype)
    layer.to(dtype)
    assert widen_products(layer) == 1
    assert isinstance(layer, WideningLinear)
    assert torch.equal(layer(x), expected)


def test_a_whole_network_keeps_its_weights_small_and_its_names() -> None:
    processor = new_processor(NETWORK)
    model = new_network(NETWORK, processor).to(torch.bfloat16).eval()
    names = list(model.state_dict())
    assert widen_products(model) > 10
    assert list(model.state_dict()) == names
    with torch.no_grad():
        logits = model(input_ids=torch.arange(40, 60)[None]).logits
    assert logits.dtype == torch.bfloat16
    assert logits.isfinite().all()
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
