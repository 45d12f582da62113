"""The engine's row rule, the full mask and the trainer's two-stream mask are one rule: same logits at one state."""

from __future__ import annotations

import pytest
import torch

from mineru_diffusion.diffusion.masks import block_causal_mask, two_stream_mask
from mineru_diffusion.engine.cache import PagedCache
from mineru_diffusion.engine.forward import InferenceDecoder
from mineru_diffusion.engine.rows import RowAttention, Run
from mineru_diffusion.model import MaskedAttention
from tests.tiny import random_model


@pytest.mark.parametrize("prompt_length", [5, 8, 16, 19])
@pytest.mark.parametrize("block", [4, 8])
def test_three_ways_to_one_state(prompt_length: int, block: int) -> None:
    model, _ = random_model()
    text = model.config.text_config
    generator = torch.Generator().manual_seed(prompt_length * block)
    blocks = 3
    prompt = torch.randint(60, 200, (1, prompt_length), generator=generator)
    answer = torch.randint(60, 200, (1, blocks * block), generator=generator)
    hidden = torch.rand((1, blocks * block), generator=generator) < 0.5
    noisy = torch.where(hidden, model.config.mask_token_id, answer)

    # Training: all noisy blocks in one pass.
    streams = torch.cat((prompt, answer[:, :-block], noisy), dim=1)
    answer_positions = torch.arange(prompt_length, prompt_length + blocks * block)
    positions = torch.cat((torch.arange(prompt_length), answer_positions[:-block], answer_positions))
    with torch.no_grad():
        trained = model(
            input_ids=streams,
            position_ids=positions[None],
            attention=MaskedAttention(two_stream_mask(prompt_length, blocks, block)),
        ).logits[0, -blocks * block :]

        cache = PagedCache(
            layers=text.num_hidden_layers,
            kv_heads=text.num_key_value_heads,
            head_dim=text.head_dim,
            page_tokens=block,
            max_pages=32,
            dtype=torch.float32,
            device=torch.device("cpu"),
        )
        decoder = InferenceDecoder(model.language_model.model)
        slots = cache.slots(cache.allocate(cache.pages_for(prompt_length + blocks * block)))
        pad = -prompt_length % block
        cached = 0
        for number in range(blocks):
            state = torch.cat(
                (prompt, answer[:, : number * block], noisy[:, number * block : (number + 1) * block]), dim=1
            )
            # Plain evaluation: the whole prefix under the full mask.
            full = model(
                input_ids=state,
                attention=MaskedAttention(block_causal_mask(state.shape[1], prompt_length, block)),
            ).logits[0, -block:]
            # The engine: the prompt or the last block together with the current one.
            stop = state.shape[1]
            hidden_states = decoder(
                model.embed(state[:, cached:])[0],
                torch.arange(cached, stop),
                stop,
                RowAttention(cache, [Run(slots, cached, stop, block, pad)], [(stop - block, stop)], decoder.repeats),
                None,
            )
            cached = stop - block
            assert hidden_states is not None
            rows = model.language_model.lm_head(hidden_states)
            torch.testing.assert_close(full, trained[number * block : (number + 1) * block], atol=2e-4, rtol=0)
            torch.testing.assert_close(rows, full, atol=2e-4, rtol=0)
