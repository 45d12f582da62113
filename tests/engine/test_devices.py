"""What is chosen when nothing is asked for: by device, by processor, by the checkpoint's size."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from mineru_diffusion.engine import devices
from mineru_diffusion.engine.devices import (
    choose_device,
    choose_dtype,
    choose_threads,
    default_overlap,
    has_bfloat16_units,
)
from mineru_diffusion.errors import UsageError

CPU = torch.device("cpu")


def checkpoint_of(folder: Path, size: int) -> Path:
    with (folder / "model.safetensors").open("wb") as file:
        file.truncate(size)  # takes no room on the disk
    return folder


@pytest.mark.parametrize(
    ("size", "units", "expected"),
    [
        (8 << 20, False, torch.float32),
        (8 << 20, True, torch.float32),
        (200 << 20, False, torch.float32),
        (200 << 20, True, torch.bfloat16),
        (5 << 30, False, None),
        (5 << 30, True, torch.bfloat16),
    ],
)
def test_the_dtype_of_a_cpu(
    size: int, units: bool, expected: torch.dtype | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "has_bfloat16_units", lambda: units)
    assert choose_dtype("auto", CPU, checkpoint_of(tmp_path, size)) == expected


def test_the_dtype_of_other_devices_and_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_dtype("auto", torch.device("mps"), tmp_path) == torch.float16
    for supported, expected in ((True, torch.bfloat16), (False, torch.float16)):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda supported=supported, **_: supported)
        assert choose_dtype("auto", torch.device("cuda"), tmp_path) == expected
    assert choose_dtype("float16", CPU, tmp_path) == torch.float16
    with pytest.raises(UsageError, match="use auto, float32"):
        choose_dtype("int4", CPU, tmp_path)


def test_units_for_bfloat16_are_asked_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    for avx, amx in ((False, False), (True, False), (False, True)):
        monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda avx=avx: avx, raising=False)
        monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda amx=amx: amx, raising=False)
        assert has_bfloat16_units() == (avx or amx)
    monkeypatch.delattr(torch.cpu, "_is_avx512_bf16_supported")
    monkeypatch.delattr(torch.cpu, "_is_amx_tile_supported")
    assert not has_bfloat16_units()


def test_devices_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for cuda, mps, expected in ((True, True, "cuda"), (False, True, "mps"), (False, False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda cuda=cuda: cuda)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda mps=mps: mps)
        assert choose_device("auto").type == expected
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert choose_device("cuda:0").type == "cuda"
    for name, message in (("cuda:1", "not available"), ("mps", "not available"), ("meta", "not available")):
        with pytest.raises(UsageError, match=message):
            choose_device(name)
    with pytest.raises(UsageError, match="unknown device"):
        choose_device("tpu9")


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("threads")
def test_no_more_threads_than_the_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices.os, "sched_getaffinity", lambda pid: set(range(3)), raising=False)
    monkeypatch.setattr(Path, "read_text", lambda self, **_: "max 100000")
    torch.set_num_threads(8)
    assert choose_threads() == 3
    # A container's share of the processors' time counts as well; what is lower already stays.
    monkeypatch.setattr(Path, "read_text", lambda self, **_: "200000 100000")
    assert choose_threads() == 2
    torch.set_num_threads(1)
    assert choose_threads() == 1


@pytest.mark.parametrize(
    ("version", "device", "overlap"),
    [
        ("2.13.0+cpu", "cpu", False),
        ("2.13.0+cu128", "cuda", True),
        ("2.10.0a0+git12", "cuda", True),
        ("2.9.1", "cuda", False),
        ("3.0", "cuda:1", True),
        ("2.13.0", "mps", False),
    ],
)
def test_images_are_encoded_beside_passes_where_two_threads_may_use_the_device(
    version: str, device: str, overlap: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "__version__", version)
    assert default_overlap(torch.device(device)) == overlap
