"""Autoregressive checkpoints through the same loop: blocks of one token, causal, outputs are next tokens."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from mineru_diffusion.engine import DecodingParams, LocalEngine, Request
from mineru_diffusion.engine.requests import block_length_of
from mineru_diffusion.errors import UsageError
from mineru_diffusion.model import MaskedAttention
from mineru_diffusion.model.checkpoint import Checkpoint
from tests.engine.test_engine import CROPS, same
from tests.tiny import DEVICE, random_checkpoint

PARAMS = DecodingParams(max_tokens=24, stop_ids=())


def causal_checkpoint() -> Checkpoint:
    checkpoint = random_checkpoint()
    return replace(checkpoint, profile=replace(checkpoint.profile, objective="autoregressive"))


@torch.inference_mode()
def greedy(checkpoint: Checkpoint, image: object, count: int) -> tuple[list[int], list[float]]:
    """The slow and obvious way: the whole sequence under a causal mask, again for every token."""
    profile, model = checkpoint.profile, checkpoint.model
    text = checkpoint.processor.prompt(profile.prompts["text"], images=1, system=profile.system_prompt)
    inputs = checkpoint.processor(images=[image], text=[text], return_tensors="pt")
    ids = inputs["input_ids"].to(DEVICE)
    visual = model.encode_images(inputs["pixel_values"].to(DEVICE), inputs["image_grid_thw"])
    embeds = model.embed(ids, visual)
    tokens: list[int] = []
    confidences: list[float] = []
    for _ in range(count):
        length = embeds.shape[1]
        mask = torch.ones((length, length), dtype=torch.bool, device=DEVICE).tril()
        logits = model(inputs_embeds=embeds, attention=MaskedAttention(mask)).logits[0, -1]
        probabilities = logits.softmax(-1)
        probabilities[model.config.mask_token_id] = 0
        tokens.append(int(probabilities.argmax()))
        confidences.append(float(probabilities.max()))
        embeds = torch.cat((embeds, model.embed(torch.tensor([[tokens[-1]]], device=DEVICE))), dim=1)
    return tokens, confidences


def test_equals_the_plain_greedy_loop() -> None:
    checkpoint = causal_checkpoint()
    with LocalEngine(checkpoint, max_rows=3) as engine:
        assert engine.loop.block_length == 1
        results = engine.generate([Request(image, params=PARAMS) for image in CROPS])
        assert engine.loop.cache.used == 0
    for image, result in list(zip(CROPS, results, strict=True))[:3]:
        tokens, confidences = greedy(checkpoint, image, 24)
        assert list(result.tokens) == tokens
        np.testing.assert_allclose(result.confidences, confidences, atol=1e-3)
        assert list(result.steps) == list(range(1, 25))
        assert result.finish_reason == "length"


def test_stops_and_limits() -> None:
    checkpoint = causal_checkpoint()
    with LocalEngine(checkpoint) as engine:
        (full,) = engine.generate([Request(CROPS[1], params=PARAMS)])
        stop = full.tokens[9]
        first = full.tokens.index(stop)
        (result,) = engine.generate([Request(CROPS[1], params=replace(PARAMS, stop_ids=(stop,)))])
    assert result.tokens == full.tokens[:first]
    assert result.finish_reason == "stop"


def test_pages_taken_away_change_nothing() -> None:
    checkpoint = causal_checkpoint()
    params = replace(PARAMS, max_tokens=70)
    with LocalEngine(checkpoint) as engine:
        expected = engine.generate([Request(image, params=params) for image in CROPS[:4]])
        page = engine._page_bytes
        largest = max(engine.loop.cache.pages_for(result.prompt_tokens + 70) for result in expected)
    with LocalEngine(checkpoint, cache_bytes=page * (largest + 3)) as engine:
        results = engine.generate([Request(image, params=params) for image in CROPS[:4]])
        assert engine.stats().preempted > 0
    for left, right in zip(results, expected, strict=True):
        same(left, right)


def test_other_block_lengths_are_refused() -> None:
    with pytest.raises(UsageError, match="blocks of one token"):
        block_length_of(causal_checkpoint().profile, 8)
