"""Images encoded beside passes: other requests' answers do not change, and neither do groups when threads are slow."""

from __future__ import annotations

import json
import random
import threading
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from mineru_diffusion.engine import LocalEngine, Request, Result
from mineru_diffusion.engine import images as image_module
from mineru_diffusion.engine.profiling import chrome_trace
from tests.engine.test_engine import CROPS, SHORT, crop, same
from tests.tiny import DEVICE, random_checkpoint

REQUESTS = [Request(image, params=SHORT) for image in [*CROPS, *(crop(96, seed) for seed in range(20, 28))]]
Grids = list[tuple[int, int, int]]


@cache
def answers() -> list[Result]:
    """What `REQUESTS` get where all run at once."""
    with LocalEngine(random_checkpoint()) as engine:
        return engine.generate(REQUESTS)


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Grids]]:
    """The thread and the grids of every call of the vision tower."""
    model = random_checkpoint().model
    encode = model.encode_images
    calls: list[tuple[str, Grids]] = []

    def encoding(pixels: Any, grids: Grids) -> Any:
        calls.append((threading.current_thread().name, list(grids)))
        return encode(pixels, grids)

    # Not in the instance's own attributes for good: the network is shared between tests.
    monkeypatch.setitem(vars(model), "encode_images", encoding)
    return calls


@pytest.mark.parametrize("max_rows", [2, 3, 7, 64])
def test_the_answers_are_the_same(max_rows: int) -> None:
    expected = answers()
    with LocalEngine(random_checkpoint(), max_rows=max_rows, overlap=True) as engine:
        for left, right in zip(engine.generate(REQUESTS), expected, strict=True):
            same(left, right)
        stats = engine.stats()
    assert stats.images == len(REQUESTS)
    # The first ones have nothing to go beside.
    assert stats.images_beside == max(0, len(REQUESTS) - max_rows)
    assert (f"({stats.images_beside} beside passes)" in "\n".join(stats.lines())) == (stats.images_beside > 0)


@pytest.mark.skipif(DEVICE.type == "cuda", reason="on CUDA nothing waits")
def test_a_pass_goes_on_meanwhile(monkeypatch: pytest.MonkeyPatch, groups: list[tuple[str, Grids]]) -> None:
    model = random_checkpoint().model
    encode, passing = model.encode_images, threading.Event()
    met: list[bool] = []

    def encoding(pixels: Any, grids: Grids) -> Any:
        if threading.current_thread().name.startswith("beside"):
            met.append(passing.wait(30))
        return encode(pixels, grids)

    monkeypatch.setitem(vars(model), "encode_images", encoding)
    with LocalEngine(random_checkpoint(), max_rows=2, overlap=True) as engine:
        plan = engine.loop.passes.plan

        def planning(*arguments: Any) -> Any:
            passing.set()
            return plan(*arguments)

        monkeypatch.setattr(engine.loop.passes, "plan", planning)
        engine.generate(REQUESTS)
    assert met
    assert all(met)
    assert {name.split("_")[0] for name, _ in groups} == {"MainThread", "beside"}


def test_groups_do_not_depend_on_time(monkeypatch: pytest.MonkeyPatch, groups: list[tuple[str, Grids]]) -> None:
    monkeypatch.setitem(image_module.GROUP_PATCHES, DEVICE.type, 256)
    # Few are cut ahead, so that the thread that cuts is the one that is waited for.
    monkeypatch.setattr(image_module, "AHEAD_PIXELS", 96 * 32 * 3)
    checkpoint = random_checkpoint()
    patches, delays = checkpoint.processor.image_processor.patches, random.Random(0)

    def slowly(image: Image.Image) -> Any:
        time.sleep(delays.choice((0, 0, 0.01)))
        return patches(image)

    seen: list[list[Grids]] = []
    for cut in (patches, slowly, slowly):
        monkeypatch.setitem(vars(checkpoint.processor.image_processor), "patches", cut)
        groups.clear()
        with LocalEngine(checkpoint, max_rows=3, overlap=True) as engine:
            engine.generate(REQUESTS)
            assert engine.stats().images_beside > 0
        seen.append([grids for _, grids in groups])
    assert seen[0] == seen[1] == seen[2]
    assert len(seen[0]) > 3


def test_no_more_is_encoded_ahead_than_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = 256
    monkeypatch.setitem(image_module.GROUP_PATCHES, DEVICE.type, limit)
    requests = [Request(crop(320, seed), params=SHORT) for seed in range(12)]
    with LocalEngine(random_checkpoint(), max_rows=2, overlap=True) as engine:
        most = 0

        def look() -> None:
            nonlocal most
            most = max(most, sum(s.prompt_embeds is not None for s in engine.loop.scheduler.waiting))

        engine.on_pass = look
        engine.generate(requests)
        side = engine.image_factor // 2
    patches = (320 // side) * (32 // side)
    assert 0 < most <= -(-limit // patches)


def test_preempted_requests_are_not_encoded_again() -> None:
    with LocalEngine(random_checkpoint()) as engine:
        expected = engine.generate(REQUESTS)
        page = engine._page_bytes
    with LocalEngine(random_checkpoint(), max_rows=8, cache_bytes=24 * page, overlap=True) as engine:
        for left, right in zip(engine.generate(REQUESTS), expected, strict=True):
            same(left, right)
        assert engine.stats().images == len(REQUESTS)


@pytest.mark.parametrize("what", ["cut", "encoded"])
def test_running_requests_do_not_wait_for_images(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a pass finished is there while waiting requests' images are still cut, or encoded beside it; cancelling
    these then does no harm."""
    checkpoint, go_on = random_checkpoint(), threading.Event()
    images, model = checkpoint.processor.image_processor, checkpoint.model
    patches, encode = images.patches, model.encode_images

    def cutting(image: Image.Image) -> Any:
        if what == "cut" and image not in (CROPS[0], CROPS[1]):
            assert go_on.wait(30)
        return patches(image)

    def encoding(pixels: Any, grids: Grids) -> Any:
        if what == "encoded" and threading.current_thread().name.startswith("beside"):
            assert go_on.wait(30)
        return encode(pixels, grids)

    monkeypatch.setitem(vars(images), "patches", cutting)
    monkeypatch.setitem(vars(model), "encode_images", encoding)
    with LocalEngine(checkpoint, max_rows=2, overlap=True) as engine:
        ids = [engine.submit(request) for request in REQUESTS[:6]]
        stream = engine.stream()
        first, result = next(stream)
        assert first in ids[:2]
        assert result.nfe > 1
        assert engine.stats().images_beside == 0
        assert engine.cancel(ids[2])
        go_on.set()
        results = dict(stream)
        assert results[ids[2]].finish_reason == "cancelled"
        assert {result.finish_reason for i, result in results.items() if i != ids[2]} <= {"stop", "length"}
        assert len(results) == 5
        assert engine.stats().images_beside == 4
        assert engine.cache_pages[0] == 0


def test_a_trace_shows_what_went_beside(tmp_path: Path) -> None:
    with LocalEngine(random_checkpoint(), max_rows=3, overlap=True) as engine:
        with chrome_trace(tmp_path / "trace.json"):
            engine.generate(REQUESTS)
        assert engine.stats().images_beside > 0
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    threads = {event["tid"] for event in events if event.get("name") == "vision"}
    assert len(threads) == 2


def test_the_thread_ends_with_the_engine() -> None:
    before = threading.active_count()
    engine = LocalEngine(random_checkpoint(), max_rows=2, overlap=True)
    engine.generate(REQUESTS)
    engine.close()
    assert threading.active_count() <= before


@pytest.mark.skipif(DEVICE.type == "cuda", reason="on CUDA it is the default")
def test_nothing_overlaps_unasked() -> None:
    with LocalEngine(random_checkpoint(), max_rows=2) as engine:
        engine.generate(REQUESTS)
        assert engine.stats().images_beside == 0


@pytest.mark.skipif(DEVICE.type != "cuda", reason="only a GPU is waited for")
def test_nothing_waits_for_the_device_while_images_are_encoded() -> None:
    with LocalEngine(random_checkpoint(), overlap=False) as engine:
        engine.generate(REQUESTS)  # whatever is made on first use
        for request in REQUESTS:
            engine.submit(request)
        waiting = list(engine.loop.scheduler.waiting)
        torch.cuda.set_sync_debug_mode("error")
        try:
            engine._images.embed(waiting)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        assert [sequence.problem for sequence in waiting] == [None] * len(waiting)
