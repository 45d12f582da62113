"""The slow and obvious versions of what training and the engine do fast."""

from __future__ import annotations

from collections.abc import Collection

import torch
import torch.nn.functional as F
from torch import Tensor

from mineru_diffusion.diffusion.masks import block_causal_mask
from mineru_diffusion.model import MaskedAttention, MinerUDiffusionForConditionalGeneration


def block_by_block(
    model: MinerUDiffusionForConditionalGeneration,
    prompt_PD: Tensor,
    answer: Tensor,
    masked: Tensor,
    factors: Tensor,
    block: int,
) -> Tensor:
    """Sum of weighted losses of one sample and one noise draw [A], each block with an input of its own: prompt, clean
    blocks before it, and the noisy block."""
    embed = model.language_model.model.embed_tokens
    total = prompt_PD.new_zeros(())
    for start in range(0, answer.shape[0], block):
        span = slice(start, start + block)
        noisy = torch.where(masked[span], model.config.mask_token_id, answer[span])
        embeds = torch.cat((prompt_PD, embed(torch.cat((answer[:start], noisy)))))[None]
        mask = block_causal_mask(embeds.shape[1], prompt_PD.shape[0], block)
        logits = model(inputs_embeds=embeds, attention=MaskedAttention(mask)).logits[0, -block:]
        total = total + (F.cross_entropy(logits, answer[span], reduction="none") * factors[span]).sum()
    return total


def token_by_token(
    model: MinerUDiffusionForConditionalGeneration, prompt_PD: Tensor, answer: Tensor, weights: Tensor
) -> Tensor:
    """Sum of weighted losses of one sample [A], each token predicted from an input of its own: prompt and the tokens
    before it, causally masked."""
    total = prompt_PD.new_zeros(())
    for at in range(answer.shape[0]):
        logits = causal_logits(model, prompt_PD, answer[:at])
        total = total + F.cross_entropy(logits, answer[at]) * weights[at]
    return total


def causal_logits(model: MinerUDiffusionForConditionalGeneration, prompt_PD: Tensor, tokens: Tensor) -> Tensor:
    """Logits [V] of the next token after prompt and tokens, under a plain causal mask."""
    embeds = torch.cat((prompt_PD, model.language_model.model.embed_tokens(tokens)))[None]
    length = embeds.shape[1]
    mask = torch.ones((length, length), dtype=torch.bool).tril()
    logits: Tensor = model(inputs_embeds=embeds, attention=MaskedAttention(mask)).logits[0, -1]
    return logits


@torch.no_grad()
def greedy_full_sequence(
    model: MinerUDiffusionForConditionalGeneration, prompt_PD: Tensor, max_tokens: int, stop_ids: Collection[int] = ()
) -> list[int]:
    """Autoregressive decoding with no cache: the whole sequence again for every token. The mask token is never written,
    and a stop token ends the answer without being part of it."""
    tokens: list[int] = []
    while len(tokens) < max_tokens:
        logits = causal_logits(model, prompt_PD, torch.tensor(tokens, dtype=torch.long))
        logits[model.config.mask_token_id] = -torch.inf
        token = int(logits.argmax())
        if token in stop_ids:
            break
        tokens.append(token)
    return tokens
