"""Prompts that are encoded already, decoded in one call: what `model.generate` is made of."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from mineru_diffusion.engine.devices import default_max_rows
from mineru_diffusion.engine.loop import DecodingLoop, page_tokens
from mineru_diffusion.engine.requests import block_length_of, new_sequence, stop_ids_of
from mineru_diffusion.engine.types import CheckpointProfile, DecodingParams, Result
from mineru_diffusion.model import MinerUDiffusionForConditionalGeneration


@torch.inference_mode()
def generate_batch(
    model: MinerUDiffusionForConditionalGeneration,
    input_ids: Tensor,
    pixel_values: Tensor | None,
    image_grid_thw: Any,
    params: DecodingParams,
    profile: CheckpointProfile,
    *,
    block_length: int | None = None,
) -> list[Result]:
    """Decode prompts [N, P]. Texts are left empty."""
    stops = stop_ids_of(model)
    length = block_length_of(profile, block_length)
    visual = None if pixel_values is None else model.encode_images(pixel_values, image_grid_thw)
    embeds = model.embed(input_ids, visual)
    sequences = [
        new_sequence(
            row,
            ids,
            # Copies of one prompt are to give different samples.
            replace(params, seed=params.seed + row),
            profile,
            block_length=length,
            mask_id=int(model.config.mask_token_id),
            default_stops=stops,
        )
        for row, ids in enumerate(input_ids.tolist())
    ]
    loop = DecodingLoop(
        model,
        block_length=length,
        max_rows=default_max_rows(embeds.device),
        max_pages=sum(-(-sequence.longest // page_tokens(length)) for sequence in sequences) or 1,
        # They would be recorded anew in every call.
        graphs=False,
    )
    for sequence, embedded in zip(sequences, embeds, strict=True):
        sequence.prompt_embeds = embedded
        loop.scheduler.waiting.append(sequence)
    while loop.scheduler.waiting or loop.scheduler.running:
        loop.scheduler.admit()
        for _ in loop.run_pass():
            pass
    return [sequence.result("") for sequence in sequences]
