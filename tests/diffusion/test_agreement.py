"""The engine's row rule, the full mask and the trainer's two-stream mask are one rule: same logits at one state."""

from __future__ import annotations

import pytest
import torch

from mineru_diffusion.diffusion.masks import block_causal_mask, two_stream_mask
from mineru_diffusion.engine.cache import PagedCache
from mineru_diffusion.engine.rows import RowAttention, RowSpan
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
            block_length=block,
            max_pages=32,
            dtype=torch.float32,
            device=torch.device("cpu"),
        )
        pad = -prompt_length % block
        prompt_rows = (prompt_length + pad) // block
        pages: list[int] = []
        for number in range(blocks):
            state = torch.cat(
                (prompt, answer[:, : number * block], noisy[:, number * block : (number + 1) * block]), dim=1
            )
            # Plain evaluation: the whole prefix under the full mask.
            full = model(
                input_ids=state,
                attention=MaskedAttention(block_causal_mask(state.shape[1], prompt_length, block)),
            ).logits[0, -block:]
            # The engine: the prompt's or the last block's rows together with the current one.
            new_rows = prompt_rows + 1 if number == 0 else 2
            while len(pages) < prompt_rows + number + 1:
                pages.append(cache.allocate())
            padded = torch.cat((torch.zeros((1, pad), dtype=torch.long), state), dim=1).view(-1, block)
            slots = (torch.arange(padded.numel()) - pad).clamp_min(0).view(-1, block)
            rows = model(
                input_ids=padded[-new_rows:],
                position_ids=slots[-new_rows:],
                attention=RowAttention(cache, [RowSpan(pages, new_rows, pad)], torch.device("cpu")),
            ).logits[-1]
            torch.testing.assert_close(full, trained[number * block : (number + 1) * block], atol=2e-4, rtol=0)
            torch.testing.assert_close(rows, full, atol=2e-4, rtol=0)
