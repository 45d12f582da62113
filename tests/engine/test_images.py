"""Images are cut in a thread ahead, and encoded many at a time, those of one size beside each other."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from mineru_diffusion.engine import LocalEngine, Request
from mineru_diffusion.engine import images as image_module
from tests.engine.test_engine import CROPS, SHORT, crop, same
from tests.tiny import DEVICE, random_checkpoint


def test_images_are_cut_ahead_and_encoded_in_groups_by_size(monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = random_checkpoint()
    calls: list[list[tuple[int, int, int]]] = []
    cutters: list[str] = []
    encode, patches = checkpoint.model.encode_images, checkpoint.processor.image_processor.patches

    def encoding(pixels: Any, grids: Any) -> Any:
        calls.append(list(grids))
        return encode(pixels, grids)

    def cutting(image: Any) -> Any:
        cutters.append(threading.current_thread().name)
        return patches(image)

    # Not in the instance's own attributes for good: the network is shared between tests.
    monkeypatch.setitem(vars(checkpoint.model), "encode_images", encoding)
    monkeypatch.setitem(vars(checkpoint.processor.image_processor), "patches", cutting)
    requests = [Request(image, params=SHORT) for image in [*CROPS, *(crop(96, seed) for seed in range(20, 28))]]
    with LocalEngine(checkpoint) as engine:
        expected = engine.generate(requests)
        assert engine.stats().images == len(requests)
    areas = [height * width for grids in calls for _, height, width in grids]
    assert len(areas) == len(requests)
    assert areas == sorted(areas)
    assert len(calls) <= 2  # as many as fit into one
    assert len(cutters) == len(requests)
    assert all(name.startswith("patches") for name in cutters)
    # Smaller groups are more calls, and the same answers.
    calls.clear()
    limit = max(areas)
    monkeypatch.setitem(image_module.GROUP_PATCHES, DEVICE.type, limit)
    with LocalEngine(checkpoint) as engine:
        for left, right in zip(engine.generate(requests), expected, strict=True):
            same(left, right)
    assert len(calls) > 2
    assert all(sum(height * width for _, height, width in grids) <= limit for grids in calls)
    assert sum(len(grids) for grids in calls) == len(requests)


def test_no_more_is_cut_ahead_than_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_module, "AHEAD_PIXELS", 1)
    with LocalEngine(random_checkpoint(), max_rows=2) as engine:
        for image in CROPS:
            engine.submit(Request(image, params=SHORT))
        assert len(engine._images._cut) == 1
        assert {result.finish_reason for _, result in engine.stream()} <= {"stop", "length"}
