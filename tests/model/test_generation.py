"""`model.generate` as a Hugging Face user calls it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from mineru_diffusion.engine import DecodingParams, LocalEngine, Request
from mineru_diffusion.errors import UsageError
from mineru_diffusion.model import BlockDiffusionGenerationConfig, BlockDiffusionOutput
from tests.tiny import random_checkpoint, random_model


def inputs(width: int = 96) -> tuple[dict[str, torch.Tensor], Image.Image]:
    _, processor = random_model()
    image = Image.fromarray(np.random.default_rng(width).integers(0, 255, (32, width, 3), dtype=np.uint8))
    text = processor.prompt("\nText Recognition:")
    return dict(processor(images=image, text=text, return_tensors="pt")), image


def test_gives_sequences_and_the_trace() -> None:
    model, _ = random_model()
    batch, _ = inputs()
    out = model.generate(**batch, max_new_tokens=20, block_length=8, threshold=0.3, eos_token_id=[10**6])
    assert isinstance(out, BlockDiffusionOutput)
    assert out.sequences is not None
    assert out.steps is not None
    assert out.confidences is not None
    prompt = batch["input_ids"].shape[1]
    assert torch.equal(out.sequences[:, :prompt], batch["input_ids"])
    assert out.steps.shape == out.confidences.shape == (1, 20)
    assert out.finish_reasons == ("length",)
    assert (out.steps >= 1).all()


def test_is_the_engines_loop() -> None:
    model, _ = random_model()
    batch, image = inputs()
    out = model.generate(**batch, max_new_tokens=24, block_length=8, threshold=0.4)
    with LocalEngine(random_checkpoint(8)) as engine:
        (result,) = engine.generate([Request(image, params=DecodingParams(threshold=0.4, max_tokens=24))])
    prompt = batch["input_ids"].shape[1]
    assert out.sequences[0, prompt:].tolist()[: len(result.tokens)] == list(result.tokens)


def test_several_prompts_of_one_length_at_once() -> None:
    model, processor = random_model()
    batch, image = inputs()
    text = processor.prompt("\nText Recognition:")
    both = dict(processor(images=[image, image.rotate(180)], text=[text, text], return_tensors="pt"))
    out = model.generate(**both, max_new_tokens=16, block_length=8)
    one = model.generate(**batch, max_new_tokens=16, block_length=8)
    assert torch.equal(out.sequences[0], one.sequences[0])


def test_sampling_is_seeded() -> None:
    model, _ = random_model()
    batch, _ = inputs()

    def sample(seed: int) -> torch.Tensor:
        out = model.generate(**batch, max_new_tokens=16, block_length=8, do_sample=True, temperature=1.5, seed=seed)
        return out.sequences

    assert torch.equal(sample(1), sample(1))
    assert not torch.equal(sample(1), sample(2))


def test_a_configuration_object() -> None:
    model, _ = random_model()
    batch, _ = inputs()
    config = BlockDiffusionGenerationConfig(max_new_tokens=8, block_length=8, policy="fixed", denoising_steps=2)
    out = model.generate(**batch, generation_config=config, eos_token_id=[10**6])
    assert out.steps.max() == 2


def test_the_prefix_policy_by_its_joint_confidence() -> None:
    model, _ = random_model()
    batch, _ = inputs()

    def steps(joint: float) -> int:
        config = BlockDiffusionGenerationConfig(max_new_tokens=8, block_length=8, policy="prefix", joint=joint)
        return int(model.generate(**batch, generation_config=config, threshold=1.0, eos_token_id=[10**6]).steps.max())

    # A joint confidence of nothing is always enough; one of certainty never is, and leaves a token a step.
    assert steps(0.0) == 1
    assert steps(1.0) == 8


def test_only_the_sequences() -> None:
    model, _ = random_model()
    batch, _ = inputs()
    out = model.generate(**batch, max_new_tokens=8, block_length=8, return_dict_in_generate=False)
    assert isinstance(out, torch.Tensor)


def test_padded_prompts_and_unknown_options_are_refused() -> None:
    model, _ = random_model()
    batch, _ = inputs()
    with pytest.raises(UsageError, match="padded"):
        model.generate(**{**batch, "attention_mask": torch.zeros_like(batch["input_ids"])})
    with pytest.raises(UsageError, match="beams"):
        model.generate(**batch, beams=3)


def test_image_tokens_must_agree_with_features() -> None:
    model, _ = random_model()
    batch, _ = inputs(96)
    wrong, _ = inputs(128)
    with pytest.raises(ValueError, match="12 image tokens but the images gave 16"):
        model.generate(batch["input_ids"], pixel_values=wrong["pixel_values"], image_grid_thw=wrong["image_grid_thw"])
