"""What computes attention over the cache. Everything else is the same for all kernels: they are told how many of the
first keys each query sees, and give a function of queries, keys and values.

Shapes: G sequences, L positions of each, S keys, K key/value heads, R query heads per key/value head (laid side by side
as R * L queries), D width of a head.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache, partial

import torch
import torch.nn.functional as F
from torch import Tensor

from mineru_diffusion.errors import UsageError

logger = logging.getLogger("mineru_diffusion.engine")

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
"""q [G, K, R * L, D], k and v [G, K, S, D] to values [G, K, R * L, D]."""

Kernel = Callable[[Tensor, int, int, torch.dtype], Attend]
"""Number of visible keys [G, L], S, R and the queries' dtype to what attends."""


def sdpa(visible_GL: Tensor, seen: int, repeats: int, dtype: torch.dtype) -> Attend:
    """Scaled dot-product attention under a dense mask."""
    allowed = torch.arange(seen, device=visible_GL.device) < visible_GL[:, :, None]
    bias = torch.zeros(allowed.shape, dtype=dtype, device=allowed.device).masked_fill_(~allowed, -torch.inf)
    return partial(F.scaled_dot_product_attention, attn_mask=bias[:, None].repeat(1, 1, repeats, 1))


def flex(visible_GL: Tensor, seen: int, repeats: int, dtype: torch.dtype) -> Attend:
    """FlexAttention, which needs no dense mask and skips keys beyond what a sequence sees."""
    from mineru_diffusion.model.flex import flex_attend, prefix_mask

    return partial(flex_attend, block_mask=prefix_mask(visible_GL.repeat(1, repeats), seen))


KERNELS: dict[str, Kernel] = {"sdpa": sdpa, "flex": flex}


@cache
def flex_problem(device: torch.device, dtype: torch.dtype, heads: int, repeats: int, length: int, width: int) -> str:
    """Why FlexAttention cannot be used for K, R, L and D of these sizes; empty if it compiles and agrees with SDPA."""
    seen = 300
    generator = torch.Generator().manual_seed(0)
    q, k, v = (
        torch.randn((2, heads, positions, width), generator=generator).to(device, dtype)
        for positions in (repeats * length, seen, seen)
    )
    visible = torch.tensor([[100], [seen]], device=device).repeat(1, length)
    try:
        with torch.inference_mode():
            values, expected = (kernel(visible, seen, repeats, dtype)(q, k, v) for kernel in (flex, sdpa))
            torch.testing.assert_close(values, expected, atol=2e-2, rtol=2e-2)
    # Without a compiler, with an older torch or on an unknown device it fails in ways that are not documented.
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def choose_kernel(
    name: str, device: torch.device, dtype: torch.dtype, *, heads: int, repeats: int, length: int, width: int
) -> Kernel:
    """A kernel by name. `auto`: `flex` on CUDA if it compiles there and agrees with `sdpa`, else `sdpa`.

    Args:
        heads: K.
        repeats: R.
        length: L of most passes.
        width: D.

    Raises:
        UsageError: an unknown name.
    """
    if name != "auto":
        if name not in KERNELS:
            raise UsageError(f"unknown attention kernel {name!r}; use auto, {', '.join(KERNELS)}")
        return KERNELS[name]
    if device.type != "cuda":
        return sdpa
    problem = flex_problem(device, dtype, heads, repeats, length, width)
    if problem:
        logger.warning("FlexAttention cannot be used here, SDPA is: %s", problem.splitlines()[0])
        return sdpa
    return flex
