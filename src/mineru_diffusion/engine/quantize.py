"""Weights in 8 bits: a quarter of float32's memory, half of bfloat16's. Only the decoder's matrices are quantized; the
embeddings, the vocabulary head, the norms and the eye keep their precision.

Shapes: I inputs, O outputs of a matrix, T positions.
"""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mineru_diffusion.errors import UsageError
from mineru_diffusion.model import MinerUDiffusionForConditionalGeneration

KINDS = ("int8",)


class Int8Linear(nn.Module):
    """A matrix in int8 with one scale an output: W[o, :] is about q[o, :] * scale[o], scale[o] = max |W[o, :]| / 127
    (symmetric, round to nearest). For the product one matrix at a time is widened to the input's type."""

    q: Tensor
    scale: Tensor

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight = linear.weight.detach().float()
        scale = weight.abs().amax(dim=1).clamp_min(torch.finfo(torch.float32).tiny) / 127
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.register_buffer("q", (weight / scale[:, None]).round_().to(torch.int8))
        self.register_buffer("scale", scale)

    def forward(self, x: Tensor) -> Tensor:
        # Processors without 16-bit matrix units multiply in float32.
        kind = torch.float32 if x.device.type == "cpu" else x.dtype
        out = F.linear(x.to(kind), self.q.to(kind))
        return out.mul_(self.scale).to(x.dtype)


def quantize_model(model: MinerUDiffusionForConditionalGeneration, kind: str) -> int:
    """Replace the matrices of the decoder's layers, in place; returns how many.

    Raises:
        UsageError: an unknown kind.
    """
    if kind not in KINDS:
        raise UsageError(f"unknown quantization {kind!r}; use {', '.join(KINDS)}")
    count = 0
    for layer in model.language_model.model.layers:
        for block in (cast(nn.Module, layer.self_attn), cast(nn.Module, layer.mlp)):
            for name, module in list(block.named_children()):
                if isinstance(module, nn.Linear):
                    setattr(block, name, Int8Linear(module))
                    count += 1
    return count
