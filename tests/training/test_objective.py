"""The two-stream loss against a slow reference that builds each block's input one by one."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from mineru_diffusion.diffusion.masks import block_causal_mask
from mineru_diffusion.diffusion.noising import draw_masks, token_weights
from mineru_diffusion.model import MaskedAttention
from mineru_diffusion.training.config import DiffusionConfig
from mineru_diffusion.training.objective import noise_config, target_weights, two_stream_loss
from tests.tiny import random_model


@pytest.mark.parametrize("weighting", ["mean", "inverse_t"])
@pytest.mark.parametrize("draws", [1, 2])
@pytest.mark.parametrize("prompt_length", [7, 8])
def test_equals_block_by_block(weighting: str, draws: int, prompt_length: int) -> None:
    model, _ = random_model()
    config = DiffusionConfig(
        block_length=4,
        weighting=weighting,  # type: ignore[arg-type]
        draws=draws,
        ordered_share=0.4 if weighting == "mean" else 0.0,
        full_share=0.1 if weighting == "mean" else 0.0,
    )
    generator = torch.Generator().manual_seed(1)
    count, blocks, block = 2, 3, 4
    prompt = torch.randint(60, 200, (count, prompt_length), generator=generator)
    answers = torch.randint(60, 200, (count, blocks * block), generator=generator)
    weights = target_weights(answers, torch.tensor([12, 6]), block, 0.25)
    with torch.no_grad():
        loss, _, _ = two_stream_loss(
            model, model.embed(prompt), answers, weights, config, torch.Generator().manual_seed(2)
        )

        noise = torch.Generator().manual_seed(2)
        numerator = denominator = 0.0
        for _ in range(draws):
            masked, levels = draw_masks((count, blocks * block), noise_config(config), noise)
            factors = token_weights(masked, levels, weighting) * weights  # type: ignore[arg-type]
            for sample in range(count):
                for number in range(blocks):
                    span = slice(number * block, (number + 1) * block)
                    noisy = torch.where(masked[sample, span], model.config.mask_token_id, answers[sample, span])
                    state = torch.cat((prompt[sample], answers[sample, : number * block], noisy))[None]
                    mask = block_causal_mask(state.shape[1], prompt_length, block)
                    logits = model(input_ids=state, attention=MaskedAttention(mask)).logits[0, -block:]
                    losses = F.cross_entropy(logits, answers[sample, span], reduction="none")
                    numerator += float((losses * factors[sample, span]).sum())
                    denominator += float(factors[sample, span].sum())
        if weighting == "inverse_t":
            denominator = float(weights.sum()) * draws
    assert float(loss) == pytest.approx(numerator / denominator, rel=1e-3)


def test_target_weights() -> None:
    weights = target_weights(torch.zeros((2, 12)), torch.tensor([12, 6]), 4, 0.25)
    assert weights.tolist() == [[1.0] * 12, [1.0] * 6 + [0.25] * 2 + [0.0] * 4]
