"""What the autoregressive objective trains is what the engine runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from PIL import Image

from mineru_diffusion.engine import DecodingParams, LocalEngine, Request
from mineru_diffusion.model.checkpoint import Checkpoint
from mineru_diffusion.training.export import end_token, fill_token
from tests.tiny import profile, random_model
from tests.training.reference import greedy_full_sequence


def test_the_engine_reads_as_the_whole_sequence_again_for_every_token() -> None:
    model, processor = random_model()
    twin = replace(profile(1), objective="autoregressive")
    pictures = [Image.linear_gradient("L").resize((width, 32)).convert("RGB") for width in (32, 96)]
    with LocalEngine(Checkpoint(model, processor, twin, Path("twin"))) as engine:
        found = engine.generate([Request(p, params=DecodingParams(max_tokens=12)) for p in pictures])
    for picture, result in zip(pictures, found, strict=True):
        encoded = processor.encode(processor.prompt(twin.prompts["text"]), [picture])
        with torch.no_grad():
            visual = model.encode_images(torch.from_numpy(encoded.pixels), list(encoded.grid))
            prompt = model.embed(torch.tensor([encoded.input_ids]), visual)[0]
        expected = greedy_full_sequence(model, prompt, 12, {end_token(processor), fill_token(processor)})
        assert list(result.tokens) == expected
        assert len(set(expected)) > 1
