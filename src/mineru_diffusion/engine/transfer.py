"""How the loop's arrays reach the model's device. On CUDA they go through page-locked memory and nothing waits for the
copy; on the CPU they are used where they are."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor


def _staged(values: NDArray[Any] | Tensor, device: torch.device) -> Tensor:
    host = values if isinstance(values, Tensor) else torch.from_numpy(values)
    # The allocator keeps page-locked memory until the copies from it are done.
    return host.pin_memory() if device.type == "cuda" else host


def to_device(values: NDArray[Any] | Tensor, device: torch.device) -> Tensor:
    """Values of this machine on `device`; on the CPU the same memory."""
    return _staged(values, device).to(device, non_blocking=device.type == "cuda")


def fill(buffer: Tensor, values: NDArray[Any]) -> None:
    """Overwrite a buffer on any device with values of its shape."""
    buffer.copy_(_staged(values, buffer.device), non_blocking=buffer.device.type == "cuda")
