"""Which device, which dtype, how many rows, how much cache: chosen automatically, overridable."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import torch

from mineru_diffusion.errors import UsageError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}

LARGE_CHECKPOINT_BYTES = 2 << 30
"""Above this, a CPU keeps the stored 16-bit weights instead of widening them to float32."""

NARROW_CHECKPOINT_BYTES = 64 << 20
"""Below this, products are so small that 16 bits save nothing on any CPU."""


def choose_device(name: str) -> torch.device:
    """A device by name; `auto` takes CUDA, then MPS, then the CPU.

    Raises:
        UsageError: the device does not exist here.
    """
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UsageError(f"unknown device {name!r}; use auto, cpu, cuda, cuda:1 or mps") from error
    missing = (device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count()) or (
        device.type == "mps" and not torch.backends.mps.is_available()
    )
    if missing or device.type not in ("cpu", "cuda", "mps"):
        raise UsageError(f"device {name!r} is not available here; use auto or cpu")
    return device


def has_bfloat16_units() -> bool:
    """Whether this processor multiplies bfloat16 matrices faster than float32 ones (AVX512-BF16 or AMX)."""
    names = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")  # older versions of torch lack one or both
    return any(getattr(torch.cpu, name, bool)() for name in names)


def choose_dtype(name: str, device: torch.device, folder: Path) -> torch.dtype | None:
    """A dtype by name. `auto`: bfloat16 on CUDA, float16 on MPS. On a CPU bfloat16 where the processor has units for
    it, else float32, and None (as stored) for checkpoints that would be too large in that; always float32 for narrow
    ones.

    Raises:
        UsageError: an unknown name.
    """
    if name != "auto":
        if name not in DTYPES:
            raise UsageError(f"unknown dtype {name!r}; use auto, {', '.join(DTYPES)}")
        return DTYPES[name]
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16
    if device.type == "mps":
        return torch.float16
    size = sum(file.stat().st_size for file in folder.glob("*.safetensors")) if folder.is_dir() else 0
    if size > NARROW_CHECKPOINT_BYTES and has_bfloat16_units():
        return torch.bfloat16
    return None if size > LARGE_CHECKPOINT_BYTES else torch.float32


def default_max_rows(device: torch.device) -> int:
    """Rows that fill a pass: more only adds latency on a CPU."""
    return 64 if device.type == "cpu" else 256


def default_cache_bytes(device: torch.device) -> int:
    """Memory that the cache may grow to: half of what is free on CUDA, else 2 GiB."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0] // 2
    return 2 << 30


def default_overlap(device: torch.device) -> bool:
    """Whether images are encoded beside passes: on CUDA, with a torch whose matrix products two threads may start at a
    time (https://github.com/pytorch/pytorch/pull/167248). On a CPU, passes leave nothing idle."""
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    return device.type == "cuda" and version >= (2, 10)


def choose_threads() -> int:
    """Let torch use no more threads than this process may run on at once: a container's share, or the cores that it is
    bound to; returns how many it uses. `OMP_NUM_THREADS` and an earlier `torch.set_num_threads` are kept if lower."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        if quota != "max":
            allowed = min(allowed, max(1, round(int(quota) / int(period))))
    if torch.get_num_threads() > allowed:
        torch.set_num_threads(allowed)
    return torch.get_num_threads()
