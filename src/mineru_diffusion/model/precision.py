"""16-bit weights on processors without 16-bit matrix units: keep the weights small, multiply in float32.

Such processors multiply 16-bit matrices element by element, some twenty times slower than float32. Widening one
layer's weight at a time costs one copy of that layer and keeps the memory of the whole model at its 16-bit size.
"""

from __future__ import annotations

import time

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SLOWDOWN = 3.0
"""16-bit products this many times slower than float32 count as not supported."""


class WideningLinear(nn.Linear):
    """A linear layer that widens its input and weight for the product and narrows the result."""

    def forward(self, x: Tensor) -> Tensor:
        bias = None if self.bias is None else self.bias.float()
        return F.linear(x.float(), self.weight.float(), bias).to(x.dtype)


def multiplies_slowly(dtype: torch.dtype, size: int = 192) -> bool:
    """Whether this processor multiplies matrices of `dtype` much slower than float32, measured on small products."""
    seconds = {}
    for kind in (torch.float32, dtype):
        left, right = torch.ones((size, size), dtype=kind), torch.ones((size, size), dtype=kind)
        times = []
        for _ in range(5):
            started = time.perf_counter()
            left @ right
            times.append(time.perf_counter() - started)
        # The best of several: a busy machine only ever makes a product slower.
        seconds[kind] = min(times)
    return seconds[dtype] > SLOWDOWN * seconds[torch.float32]


def widen_products(module: nn.Module) -> int:
    """Turn all plain linear layers of `module` into widening ones, in place; returns how many."""
    layers = [layer for layer in module.modules() if type(layer) is nn.Linear]
    for layer in layers:
        layer.__class__ = WideningLinear
    return len(layers)
