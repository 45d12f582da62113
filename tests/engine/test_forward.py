"""The inference form of the decoder against the model's own `forward`, and its options."""

from __future__ import annotations

import copy

import pytest
import torch
from safetensors.torch import load, save

from mineru_diffusion.engine import LocalEngine, Request
from mineru_diffusion.engine import rows as row_module
from mineru_diffusion.engine.forward import InferenceDecoder, rms_norm, rotate
from mineru_diffusion.engine.projections import merge_weights, side_by_side
from mineru_diffusion.engine.quantize import Int8Linear, quantize_model
from mineru_diffusion.errors import UsageError
from mineru_diffusion.model.rope import apply_rope, rope_1d
from tests.engine.test_engine import CROPS, SHORT, same
from tests.tiny import DEVICE, random_checkpoint


def test_pieces_equal_the_models_own() -> None:
    x = torch.randn(5, 3, 16)
    cos, sin = rope_1d(torch.arange(5), 16, 10000.0)
    torch.testing.assert_close(rotate(x, cos[:, None, :8], sin[:, None, :8]), apply_rope(x, cos[:, None], sin[:, None]))
    weight = torch.rand(16)
    torch.testing.assert_close(rms_norm(x, weight, 1e-6), torch.nn.functional.rms_norm(x, (16,), weight, 1e-6))
    half = rms_norm(x.bfloat16(), weight.bfloat16(), 1e-6)
    assert half.dtype == torch.bfloat16


def test_reading_the_cache_in_place_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = [Request(image, params=SHORT) for image in CROPS]
    with LocalEngine(random_checkpoint()) as engine:
        expected = engine.generate(requests)
    monkeypatch.setattr(row_module, "LONG", 1)
    with LocalEngine(random_checkpoint()) as engine:
        for left, right in zip(engine.generate(requests), expected, strict=True):
            same(left, right)


def test_int8_weights_are_close() -> None:
    linear = torch.nn.Linear(48, 32, bias=False)
    x = torch.randn(7, 48)
    exact, rounded = linear(x), Int8Linear(linear)(x)
    assert (exact - rounded).norm() / exact.norm() < 0.01
    model = copy.deepcopy(random_checkpoint().model)
    assert quantize_model(model, "int8") == 7 * len(model.language_model.model.layers)
    decoder = model.language_model.model
    assert sum(b.dtype == torch.int8 for b in decoder.buffers()) == 7 * len(decoder.layers)
    with pytest.raises(UsageError, match="int8"):
        quantize_model(model, "int2")


def test_tables_grow_with_the_sequence() -> None:
    decoder = InferenceDecoder(random_checkpoint().model.language_model.model)
    short = decoder.rope(torch.tensor([5]), 6, torch.float32)
    long = decoder.rope(torch.tensor([5, 4000]), 4001, torch.float32)
    torch.testing.assert_close(short[0][0], long[0][0])


def test_merged_matrices_share_their_memory_with_the_models_own() -> None:
    parts = [torch.nn.Linear(12, rows, bias=False) for rows in (5, 3, 3)]
    before = [part.weight.detach().clone() for part in parts]
    merged = merge_weights(parts)
    torch.testing.assert_close(merged, torch.cat(before))
    assert merge_weights(parts).data_ptr() == merged.data_ptr()
    assert merge_weights(parts[1:]).data_ptr() == merged[5:].data_ptr()
    with torch.no_grad():
        parts[1].weight.mul_(2)
    torch.testing.assert_close(merged[5:8], 2 * before[1])
    x = torch.randn(4, 12)
    torch.testing.assert_close(side_by_side(parts)(x), torch.cat([part(x) for part in parts], dim=-1))


def test_other_matrices_are_asked_one_by_one() -> None:
    plain, other = torch.nn.Linear(12, 5, bias=False), Int8Linear(torch.nn.Linear(12, 3, bias=False))
    own = plain.weight.data_ptr()
    x = torch.randn(4, 12)
    torch.testing.assert_close(side_by_side((plain, other))(x), torch.cat((plain(x), other(x)), dim=-1))
    torch.testing.assert_close(side_by_side((other,))(x), other(x))
    assert plain.weight.data_ptr() == own


def test_a_merged_model_is_saved_and_trained_as_before() -> None:
    model = copy.deepcopy(random_checkpoint().model)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    InferenceDecoder(model.language_model.model)
    for name, value in load(save(model.state_dict())).items():
        torch.testing.assert_close(value, state[name])
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    attention = model.language_model.model.layers[0].self_attn
    attention.k_proj(torch.ones(1, attention.k_proj.in_features, device=DEVICE)).sum().backward()
    optimizer.step()
    changed = {n for n, p in model.named_parameters() if not torch.equal(p, state[n])}
    assert changed == {"language_model.model.layers.0.self_attn.k_proj.weight"}
