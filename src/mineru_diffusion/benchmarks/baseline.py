"""The straightforward loop that every speed claim is measured against: the public implementation's algorithm written
plainly. One crop after the other; a pass over the prompt whose logits go unused; per block denoising steps over the
whole block with logits and probabilities everywhere; one more pass that stores the finished block; keys and values
concatenated to the cache. Same network, same policy, same tokens as the engine.

Shapes: N = 1 batch, L positions, S cached positions, B block length, K key/value heads, D width of a head.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import torch
from torch import Tensor

from mineru_diffusion.diffusion.masks import block_causal_mask
from mineru_diffusion.model import MinerUDiffusionForConditionalGeneration
from mineru_diffusion.model.attention import grouped_sdpa


@dataclass
class GrowingCache:
    """An `AttentionContext` with keys and values [1, K, S, D] a layer; a stored pass makes them longer.

    Attributes:
        store: keep this pass's keys and values.
        mask: who sees whom in this pass [L, S + L]; None: everything is visible.
    """

    keys: dict[int, Tensor] = field(default_factory=dict)
    values: dict[int, Tensor] = field(default_factory=dict)
    store: bool = False
    mask: Tensor | None = None

    def attend(self, layer: int, q_NHLD: Tensor, k_NKLD: Tensor, v_NKLD: Tensor) -> Tensor:
        if layer in self.keys:
            k_NKLD = torch.cat((self.keys[layer], k_NKLD), dim=2)
            v_NKLD = torch.cat((self.values[layer], v_NKLD), dim=2)
        if self.store:
            self.keys[layer], self.values[layer] = k_NKLD, v_NKLD
        return grouped_sdpa(q_NHLD, k_NKLD, v_NKLD, self.mask)


@dataclass
class PlainResult:
    """Tokens up to the stop, the step at which each was decided, and the forward passes that it took."""

    tokens: list[int]
    steps: list[int]
    passes: int


@torch.inference_mode()
def decode_plainly(
    model: MinerUDiffusionForConditionalGeneration,
    input_ids: Tensor,
    pixel_values: Tensor | None = None,
    image_grid_thw: Tensor | None = None,
    *,
    block_length: int,
    threshold: float,
    max_tokens: int,
    stop_ids: Collection[int],
) -> PlainResult:
    """Decode one prompt [1, P] greedily with the confidence threshold policy.

    Tokens behind `max_tokens` are cut off, as blocks are always finished here; a stop is looked for in finished blocks.
    """
    mask_id = int(model.config.mask_token_id)
    cache = GrowingCache(store=True)
    visual = None if pixel_values is None else model.encode_images(pixel_values, image_grid_thw)
    embeds = model.embed(input_ids, visual)
    length = embeds.shape[1]
    cache.mask = block_causal_mask(length, length, block_length, embeds.device)
    model(inputs_embeds=embeds, attention=cache)
    cache.mask = None
    passes, step = 1, 0
    tokens: list[int] = []
    steps: list[int] = []
    while len(tokens) < max_tokens:
        block = torch.full((1, block_length), mask_id, device=embeds.device)
        decided_at = torch.zeros(block_length, dtype=torch.long)
        positions = length + len(tokens) + torch.arange(block_length, device=embeds.device)[None]
        cache.store = False
        while True:
            masked = block[0] == mask_id
            if not masked.any():
                break
            logits = model(
                inputs_embeds=model.get_input_embeddings()(block), position_ids=positions, attention=cache
            ).logits
            passes, step = passes + 1, step + 1
            probabilities = torch.softmax(logits[0].float(), dim=-1)
            # The mask token keeps its share of the probability but is never a prediction.
            probabilities[:, mask_id] = 0
            confidence, best = probabilities.max(dim=-1)
            confidence = confidence.masked_fill(~masked, -torch.inf)
            chosen = confidence > threshold
            if not chosen.any():
                chosen[confidence.argmax()] = True
            block[0, chosen] = best[chosen]
            decided_at[chosen.cpu()] = step
        cache.store = True
        model(inputs_embeds=model.get_input_embeddings()(block), position_ids=positions, attention=cache)
        passes += 1
        tokens += block[0].tolist()
        steps += decided_at.tolist()
        stop = next((i for i, token in enumerate(tokens) if token in stop_ids), None)
        if stop is not None:
            return PlainResult(tokens[:stop], steps[:stop], passes)
    return PlainResult(tokens[:max_tokens], steps[:max_tokens], passes)
