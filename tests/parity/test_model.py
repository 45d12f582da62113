"""Every tensor of the public implementation, stage by stage and end to end."""

from __future__ import annotations

import pytest
import torch

from mineru_diffusion.diffusion.masks import block_causal_mask
from mineru_diffusion.engine.cache import PagedCache
from mineru_diffusion.engine.forward import InferenceDecoder
from mineru_diffusion.engine.rows import RowAttention, Run
from mineru_diffusion.model import MaskedAttention, MinerUDiffusionConfig, MinerUDiffusionForConditionalGeneration
from mineru_diffusion.model.checkpoint import load_checkpoint
from tests.parity import kit
from tests.tiny import DEVICE

TOLERANCE = 1e-4
CASES = [case for case in kit.cases() if case != "batch2"]
LENGTHS = (4, 8, 32)


@pytest.fixture(scope="module")
def model() -> MinerUDiffusionForConditionalGeneration:
    model = load_checkpoint(kit.checkpoint(), device=DEVICE).model
    # The public implementation's rounding in the first layer; random deep networks amplify the last bit.
    model.vision_model.patch_embed.as_convolution = True
    return model


def close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    assert actual.shape == expected.shape
    torch.testing.assert_close(actual, expected, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("case", [case for case in CASES if "patch_embed" in kit.tensors(case)])
def test_vision_stages(case: str, model: MinerUDiffusionForConditionalGeneration) -> None:
    expected = kit.tensors(case)
    stages: dict[str, torch.Tensor] = {}
    hooks = [
        module.register_forward_hook(lambda _module, _inputs, output, name=name: stages.update({name: output}))
        for name, module in (
            ("patch_embed", model.vision_model.patch_embed),
            ("vision_block0", model.vision_model.blocks[0]),
            ("vision_block1", model.vision_model.blocks[1]),
            ("vision_features", model.vision_model),
            ("projected", model.vision_abstractor),
        )
    ]
    with torch.no_grad():
        model.encode_images(expected["pixel_values"], expected["image_grid_thw"])
    for hook in hooks:
        hook.remove()
    # Images of one size share an attention call, so with several images the blocks see them in another order.
    names = ("vision_features", "projected") if case == "two_images" else tuple(stages)
    for name in names:
        close(stages[name], expected[name])


def embedded(model: MinerUDiffusionForConditionalGeneration, case: str) -> torch.Tensor:
    tensors = kit.tensors(case)
    visual = None
    if "pixel_values" in tensors:
        visual = model.encode_images(tensors["pixel_values"], tensors["image_grid_thw"])
    return model.embed(tensors["input_ids"], visual)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("block_length", LENGTHS)
def test_prompt_logits(case: str, block_length: int, model: MinerUDiffusionForConditionalGeneration) -> None:
    expected = kit.tensors(case)
    with torch.no_grad():
        embeds = embedded(model, case)
        close(embeds, expected["inputs_embeds"])
        logits = model(inputs_embeds=embeds, block_length=block_length).logits[0]
    tail = expected[f"prompt_logits_b{block_length}"]
    close(logits[-tail.shape[0] :], tail)
    assert torch.equal(logits.argmax(-1), expected[f"prompt_argmax_b{block_length}"].long())


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("block_length", LENGTHS)
def test_masks(case: str, block_length: int) -> None:
    tensors = kit.tensors(case)
    prompt = tensors["input_ids"].shape[1]
    expected = tensors[f"mask_P_plus_64_b{block_length}"].bool()
    assert torch.equal(block_causal_mask(prompt + 64, prompt, block_length, DEVICE), expected)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("block_length", LENGTHS)
def test_cached_rows(case: str, block_length: int, model: MinerUDiffusionForConditionalGeneration) -> None:
    """The row rule against the public implementation's cache and logits: prompt rows fill pages that hold its keys and
    values, and the first denoising row, riding in the same pass, gives its logits."""
    expected = kit.tensors(case)
    text = model.config.text_config
    with torch.no_grad():
        embeds = embedded(model, case)[0]
        prompt = embeds.shape[0]
        mask_row = model.embed(torch.full((1, block_length), model.config.mask_token_id, device=DEVICE))[0]
        cache = PagedCache(
            layers=text.num_hidden_layers,
            kv_heads=text.num_key_value_heads,
            head_dim=text.head_dim,
            page_tokens=block_length,
            max_pages=-(-prompt // block_length) + 1,
            dtype=torch.float32,
            device=DEVICE,
        )
        decoder = InferenceDecoder(model.language_model.model)
        stop = prompt + block_length
        slots = cache.slots(cache.allocate(cache.pages_for(stop)))
        run = Run(slots, 0, stop, block_length, -prompt % block_length)
        # Everything is asked for, so that the prompt's logits can be compared as well.
        attention = RowAttention(cache, [run], [(0, stop)], decoder.repeats)
        positions = torch.arange(stop, device=DEVICE)
        hidden = decoder(torch.cat((embeds, mask_row)), positions, stop, attention, None)
        assert hidden is not None
        logits = model.language_model.lm_head(hidden)
    close(logits[prompt:], expected[f"block0_step0_logits_b{block_length}"])
    tail = expected[f"prompt_logits_b{block_length}"]
    close(logits[prompt - tail.shape[0] : prompt], tail)
    where = torch.from_numpy(slots[:prompt]).to(DEVICE)
    for layer in range(text.num_hidden_layers):
        close(cache.keys[layer][where].transpose(0, 1), expected[f"prompt_k{layer}_b{block_length}"])
        close(cache.values[layer][where].transpose(0, 1), expected[f"prompt_v{layer}_b{block_length}"])


def test_batch_of_two_prompts(model: MinerUDiffusionForConditionalGeneration) -> None:
    """Two prompts in one call give what each gives alone."""
    if "batch2" not in kit.cases():
        pytest.skip("the trimmed kit has no batch")
    tensors = kit.tensors("batch2")
    ids, grid = tensors["input_ids"], tensors["image_grid_thw"]
    first = int(grid[0].prod())
    with torch.no_grad():
        both = model(input_ids=ids, pixel_values=tensors["pixel_values"], image_grid_thw=grid).logits
        alone = model(input_ids=ids[1:], pixel_values=tensors["pixel_values"][first:], image_grid_thw=grid[1:]).logits
    close(both[1], alone[0])


def test_state_dict_equals_the_kits_checkpoint(model: MinerUDiffusionForConditionalGeneration) -> None:
    from safetensors import safe_open

    with safe_open(str(kit.checkpoint() / "model.safetensors"), framework="pt") as file:
        expected = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    assert {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()} == expected


def test_full_size_names_and_shapes() -> None:
    import json

    fields = json.loads((kit.root() / "config_full.json").read_text(encoding="utf-8"))
    fields = fields.get("config", fields)
    with torch.device("meta"):
        model = MinerUDiffusionForConditionalGeneration(MinerUDiffusionConfig.from_dict(fields))
    keys = kit.keys_full()
    keys = keys.get("keys", keys)
    expected = {name: list(shape["shape"] if isinstance(shape, dict) else shape) for name, shape in keys.items()}
    assert {name: list(tensor.shape) for name, tensor in model.state_dict().items()} == expected


def test_default_attention_is_the_prompt_mask(model: MinerUDiffusionForConditionalGeneration) -> None:
    ids = kit.tensors("text_only")["input_ids"]
    with torch.no_grad():
        default = model(input_ids=ids, block_length=8).logits
        length = ids.shape[1]
        masked = model(input_ids=ids, attention=MaskedAttention(block_causal_mask(length, length, 8, DEVICE))).logits
    assert torch.equal(default, masked)
