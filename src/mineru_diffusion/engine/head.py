"""From hidden states to predictions: the vocabulary head and softmax statistics, in pieces, so that neither logits nor
probabilities of all positions are ever held.

Shapes: M positions, W decoder width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mineru_diffusion.engine.transfer import to_device

CHUNK_ELEMENTS = 1 << 24
"""Logits held at a time (64 MB in float32)."""


@dataclass(frozen=True)
class Prediction:
    """Token [M], the probability that it was given [M], and the entropy of the distribution in nats [M] if wanted."""

    token: Tensor
    confidence: Tensor
    entropy: Tensor | None


def predict(
    head: nn.Module,
    hidden_MW: Tensor,
    *,
    mask_id: int,
    temperatures: Sequence[tuple[float, torch.Generator | None]],
    counts: Sequence[int],
    entropy: bool,
) -> Prediction:
    """Predict a token at each position.

    Args:
        head: the vocabulary head.
        hidden_MW: states after the final norm, sequence by sequence.
        mask_id: keeps its share of the probability but is never a prediction.
        temperatures: of each sequence (0: greedy), with its random stream.
        counts: positions of each sequence; they add up to M.
        entropy: compute it.
    """
    heat, noise = None, None
    if any(temperature > 0 for temperature, _ in temperatures):
        device = hidden_MW.device
        per_position = [t for (t, _), n in zip(temperatures, counts, strict=True) for _ in range(n)]
        heat = to_device(torch.tensor(per_position), device)[:, None]
        noise = to_device(_uniforms(temperatures, counts), device)[:, None]
    size = hidden_MW.shape[0]
    chunk = max(1, CHUNK_ELEMENTS // cast(int, head.out_features))
    parts = [
        _chunk(
            head,
            hidden_MW[at],
            mask_id,
            None if heat is None else heat[at],
            None if noise is None else noise[at],
            entropy,
        )
        for at in (slice(start, start + chunk) for start in range(0, size, chunk))
    ]
    if len(parts) == 1:
        return parts[0]
    entropies = [part.entropy for part in parts if part.entropy is not None]
    return Prediction(
        torch.cat([part.token for part in parts]),
        torch.cat([part.confidence for part in parts]),
        torch.cat(entropies) if entropies else None,
    )


def _chunk(
    head: nn.Module, hidden: Tensor, mask_id: int, heat: Tensor | None, noise: Tensor | None, entropy: bool
) -> Prediction:
    logits = head(hidden).float()
    if heat is not None:
        logits = torch.where(heat > 0, logits / heat.clamp_min(1e-6), logits)
    total = logits.logsumexp(dim=-1)
    spread = total - (F.softmax(logits, dim=-1) * logits).sum(dim=-1) if entropy else None
    logits[:, mask_id] = -torch.inf
    picked, best = logits.max(dim=-1)
    if heat is not None and noise is not None:
        cumulative = F.softmax(logits, dim=-1).cumsum(dim=-1)
        drawn = torch.searchsorted(cumulative, noise * cumulative[:, -1:]).clamp_max(logits.shape[-1] - 1)
        best = torch.where(heat[:, 0] > 0, drawn[:, 0], best)
        picked = logits.gather(-1, best[:, None])[:, 0]
    return Prediction(best, picked.sub_(total).exp_(), spread)


def _uniforms(temperatures: Sequence[tuple[float, torch.Generator | None]], counts: Sequence[int]) -> Tensor:
    """One uniform number per position, from each request's own stream: the batch changes nothing."""
    drawn = []
    for (temperature, generator), count in zip(temperatures, counts, strict=True):
        if temperature > 0 and generator is not None:
            drawn.append(torch.rand(count, generator=generator))
        else:
            drawn.append(torch.zeros(count))
    return torch.cat(drawn)
