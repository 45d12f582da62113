"""Arrays on their way to the model's device."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mineru_diffusion.engine.transfer import fill, to_device

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def test_nothing_is_copied_on_the_cpu() -> None:
    values = np.arange(6)
    moved = to_device(values, CPU)
    values[0] = 7
    assert moved.tolist() == values.tolist()
    assert to_device(moved, CPU) is moved


def test_on_cuda_copies_come_from_page_locked_memory_and_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[object] = []

    def pin(self: torch.Tensor) -> torch.Tensor:
        done.append("pinned")
        return self

    def to(self: torch.Tensor, device: torch.device, *, non_blocking: bool) -> torch.Tensor:
        done.append((device.type, non_blocking))
        return self

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    monkeypatch.setattr(torch.Tensor, "to", to)
    assert to_device(np.arange(3), CUDA).tolist() == [0, 1, 2]
    assert done == ["pinned", ("cuda", True)]


def test_other_devices_get_a_plain_copy() -> None:
    assert to_device(np.arange(3), torch.device("meta")).device.type == "meta"


def test_buffers_are_overwritten_in_place() -> None:
    buffer = torch.zeros(2, 3, dtype=torch.int64)
    address = buffer.data_ptr()
    fill(buffer, np.arange(6).reshape(2, 3))
    assert buffer.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert buffer.data_ptr() == address
