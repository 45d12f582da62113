"""Images encoded beside passes: other requests' answers do not change, and neither do groups when threads are slow."""

from __future__ import annotations

import contextlib
import json
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from mineru_diffusion.engine import LocalEngine, Request
from mineru_diffusion.engine import images as image_module
from mineru_diffusion.engine.beside import Beside, LazyThread
from mineru_diffusion.engine.profiling import chrome_trace
from mineru_diffusion.errors import EngineError
from tests.engine.test_engine import CROPS, SHORT, crop, same
from tests.tiny import DEVICE, random_checkpoint

REQUESTS = [Request(image, params=SHORT) for image in [*CROPS, *(crop(96, seed) for seed in range(20, 28))]]
Grids = list[tuple[int, int, int]]


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


@pytest.fixture
def broken() -> Image.Image:
    image = crop(64, 3)
    image.convert = _fails  # type: ignore[method-assign]
    return image


def _fails(*_: object, **__: object) -> Any:
    raise OSError("truncated")


@pytest.mark.parametrize("max_rows", [2, 3, 7, 64])
def test_the_answers_are_the_same(max_rows: int) -> None:
    with LocalEngine(random_checkpoint()) as engine:
        expected = engine.generate(REQUESTS)
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


def test_a_broken_image_fails_alone(broken: Image.Image) -> None:
    requests = [*REQUESTS[:6], Request(broken, params=SHORT), *REQUESTS[6:]]
    with LocalEngine(random_checkpoint()) as engine:
        expected = engine.generate(REQUESTS)
    with LocalEngine(random_checkpoint(), max_rows=2, overlap=True) as engine:
        results = engine.generate(requests)
        assert engine.cache_pages[0] == 0
    problem = results.pop(6)
    assert problem.finish_reason == "error"
    assert "cannot be decoded: truncated" in (problem.error or "")
    for left, right in zip(results, expected, strict=True):
        same(left, right)


def test_a_request_that_is_cancelled_after_it_was_encoded(broken: Image.Image) -> None:
    with LocalEngine(random_checkpoint(), max_rows=2, overlap=True) as engine:
        ids = [engine.submit(request) for request in [*REQUESTS[:8], Request(broken, params=SHORT)]]
        cancelled: set[int] = set()

        def cancel() -> None:
            if not cancelled:
                cancelled.update(i for i in ids[2:] if engine.cancel(i))

        engine.on_pass = cancel
        reasons = {request_id: result.finish_reason for request_id, result in engine.stream()}
        assert not engine._images._images
        assert not engine._images._cut
    assert cancelled == set(ids[2:])
    assert {reasons[i] for i in ids[2:]} == {"cancelled"}
    assert {reasons[i] for i in ids[:2]} <= {"stop", "length"}


def test_preempted_requests_are_not_encoded_again() -> None:
    with LocalEngine(random_checkpoint()) as engine:
        expected = engine.generate(REQUESTS)
        page = engine._page_bytes
    with LocalEngine(random_checkpoint(), max_rows=8, cache_bytes=24 * page, overlap=True) as engine:
        for left, right in zip(engine.generate(REQUESTS), expected, strict=True):
            same(left, right)
        assert engine.stats().images == len(REQUESTS)


ERRORS = [RuntimeError("no memory"), MemoryError("full"), ValueError("odd"), KeyError("what")]


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("error", ERRORS)
def test_what_goes_wrong_while_encoding_is_an_answer(
    error: Exception, overlap: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One image that the eye fails on, by itself or with others, fails alone; the engine goes on."""
    with LocalEngine(random_checkpoint()) as engine:
        expected = engine.generate(REQUESTS)
    model = random_checkpoint().model
    encode = model.encode_images
    bad = (1, 4, 14)

    def encoding(pixels: Any, grids: Grids) -> Any:
        if bad in grids:
            raise error
        return encode(pixels, grids)

    monkeypatch.setitem(vars(model), "encode_images", encoding)
    with LocalEngine(random_checkpoint(), max_rows=3, overlap=overlap) as engine:
        side = engine.image_factor // 2
        odd = Request(crop(bad[2] * side, 5), params=SHORT)
        assert odd.image is not None
        assert engine._processor.image_processor.patches(odd.image)[1] == bad
        results = engine.generate([*REQUESTS[:5], odd, *REQUESTS[5:]])
        problem = results.pop(5)
        assert problem.finish_reason == "error"
        assert str(error) in (problem.error or "")
        for left, right in zip(results, expected, strict=True):
            same(left, right)
        assert engine.cache_pages[0] == 0
        assert engine.stats().images == len(REQUESTS)
        assert engine.stats().images_beside == (len(REQUESTS) - 3 if overlap else 0)


@pytest.mark.parametrize("overlap", [False, True])
def test_a_prompt_that_does_not_fit_its_image_fails_alone(overlap: bool) -> None:
    with LocalEngine(random_checkpoint()) as engine:
        expected = engine.generate(REQUESTS)
    with LocalEngine(random_checkpoint(), max_rows=3, overlap=overlap) as engine:
        ids = [engine.submit(request) for request in REQUESTS]
        wrong = engine.loop.scheduler.waiting[5]
        wrong.prompt_ids.append(engine.loop.model.config.image_token_id)
        results = dict(engine.stream())
        assert engine.cache_pages[0] == 0
    problem = results.pop(ids[5])
    assert "image tokens" in (problem.error or "")
    for request_id, right in zip(ids, expected, strict=True):
        if request_id != ids[5]:
            same(results[request_id], right)


@pytest.mark.parametrize("overlap", [False, True])
def test_requests_that_wait_survive_a_pass_that_fails(overlap: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    with LocalEngine(random_checkpoint()) as engine:
        expected = engine.generate(REQUESTS)
    with LocalEngine(random_checkpoint(), max_rows=3, overlap=overlap) as engine:
        run_pass = engine.loop.run_pass

        def fails() -> Any:
            monkeypatch.setattr(engine.loop, "run_pass", run_pass)
            raise RuntimeError("no memory")

        monkeypatch.setattr(engine.loop, "run_pass", fails)
        ids = [engine.submit(request) for request in REQUESTS]
        with pytest.raises(EngineError, match="no memory"):
            list(engine.stream())
        results = dict(engine.stream())
        assert engine.cache_pages[0] == 0
    for request_id, right in zip(ids, expected, strict=True):
        same(results[request_id], right)


def test_images_that_are_not_cut_yet_hold_up_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    images, go_on = random_checkpoint().processor.image_processor, threading.Event()
    patches = images.patches

    def cutting(image: Image.Image) -> Any:
        if image not in (CROPS[0], CROPS[1]):
            assert go_on.wait(30)
        return patches(image)

    monkeypatch.setitem(vars(images), "patches", cutting)
    with LocalEngine(random_checkpoint(), max_rows=2, overlap=True) as engine:
        ids = [engine.submit(request) for request in REQUESTS[:6]]
        stream = engine.stream()
        request_id, result = next(stream)
        assert request_id in ids[:2]
        assert result.nfe > 1
        go_on.set()
        assert {result.finish_reason for _, result in stream} <= {"stop", "length"}
        assert engine.stats().images_beside == 4


def test_after_all_that_was_begun_is_cancelled_the_next_are_begun() -> None:
    with LocalEngine(random_checkpoint()) as engine:
        expected = engine.generate(REQUESTS)
    with LocalEngine(random_checkpoint(), max_rows=2, overlap=True) as engine:
        ids = [engine.submit(request) for request in REQUESTS[:4]]

        def cancel() -> None:
            for request_id in ids:
                engine.cancel(request_id)

        engine.on_pass = cancel
        assert {result.finish_reason for _, result in engine.stream()} == {"cancelled"}
        engine.on_pass = None
        for left, right in zip(engine.generate(REQUESTS[4:]), expected[4:], strict=True):
            same(left, right)
        assert engine.stats().images_beside == 2 + len(REQUESTS) - 4 - 2


@pytest.mark.parametrize(("overlap", "at"), [(False, 0), (True, 0), (True, 1), (True, 2)])
def test_an_interrupt_loses_no_image(overlap: bool, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """While images are encoded, or while the thread that does it is given them or waited for."""
    with LocalEngine(random_checkpoint()) as engine:
        expected = engine.generate(REQUESTS)
    with LocalEngine(random_checkpoint(), max_rows=3, overlap=overlap) as engine:
        images = engine._images
        owner, name = [(images, "_visual"), (images._beside, "start"), (images._beside, "finish")][at]
        usual = getattr(owner, name)

        def interrupted(*arguments: Any) -> Any:
            monkeypatch.setattr(owner, name, usual)
            raise KeyboardInterrupt

        monkeypatch.setattr(owner, name, interrupted)
        ids = [engine.submit(request) for request in REQUESTS]
        with pytest.raises(KeyboardInterrupt):
            list(engine.stream())
        results = dict(engine.stream())
        assert engine.cache_pages[0] == 0
    for request_id, right in zip(ids, expected, strict=True):
        same(results[request_id], right)


def test_a_device_that_fails_beside_is_an_engine_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with LocalEngine(random_checkpoint(), max_rows=3, overlap=True) as engine:
        assert engine._images._beside is not None
        finish = engine._images._beside.finish

        def fails() -> None:
            finish()
            raise RuntimeError("device-side assert")

        monkeypatch.setattr(engine._images._beside, "finish", fails)
        with pytest.raises(EngineError, match="device-side assert"):
            engine.generate(REQUESTS)
        assert engine.cache_pages[0] == 0


def test_a_trace_shows_what_went_beside(tmp_path: Path) -> None:
    with LocalEngine(random_checkpoint(), max_rows=3, overlap=True) as engine:
        with chrome_trace(tmp_path / "trace.json"):
            engine.generate(REQUESTS)
        assert engine.stats().images_beside > 0
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    threads = {event["tid"] for event in events if event.get("name") == "vision"}
    assert len(threads) == 2


def test_results_do_not_wait_for_the_eye(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a pass finished is there while images are still encoded beside it; cancelling these then does no harm."""
    model = random_checkpoint().model
    encode, go_on = model.encode_images, threading.Event()

    def encoding(pixels: Any, grids: Grids) -> Any:
        if threading.current_thread().name.startswith("beside"):
            assert go_on.wait(30)
        return encode(pixels, grids)

    monkeypatch.setitem(vars(model), "encode_images", encoding)
    with LocalEngine(random_checkpoint(), max_rows=2, overlap=True) as engine:
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
        assert engine.cache_pages[0] == 0


@pytest.mark.parametrize("error", ERRORS)
def test_no_error_while_cutting_stops_the_others(error: Exception) -> None:
    def fails(*_: object, **__: object) -> Any:
        raise error

    bad = crop(64, 3)
    bad.convert = fails  # type: ignore[method-assign]
    for overlap in (False, True):
        with LocalEngine(random_checkpoint(), max_rows=3, overlap=overlap) as engine:
            results = engine.generate([*REQUESTS[:5], Request(bad, params=SHORT), *REQUESTS[5:]])
            assert [i for i, result in enumerate(results) if result.finish_reason == "error"] == [5]
            again = engine.generate(REQUESTS[:5])
        for left, right in zip(again, results[:5], strict=True):
            same(left, right)


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


def test_work_is_done_once_by_a_thread_of_its_own() -> None:
    beside, done, begun = Beside(torch.device("cpu")), [], threading.Event()

    def work() -> list[torch.Tensor]:
        begun.set()
        done.append(threading.current_thread().name)
        return []

    beside.finish()  # nothing was begun
    beside.start(work)
    beside.finish()
    beside.finish()
    assert [name.split("_")[0] for name in done] == ["beside"]
    begun.clear()
    beside.start(work)
    assert begun.wait(30)
    beside.close()
    beside.close()
    assert len(done) == 2
    assert not [t for t in threading.enumerate() if t.name.startswith("beside")]


def test_without_a_thread_it_is_done_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    thread, done = LazyThread("none"), []
    start = threading.Thread.start

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert thread.submit(done.append, 1).done()
    assert done == [1]
    with pytest.raises(OSError, match="truncated"):
        thread.submit(_fails).result()
    monkeypatch.setattr(threading.Thread, "start", start)
    thread.submit(done.append, 2).result()
    thread.close()
    assert done == [1, 2]  # what was refused is not done again


class FakeStream:
    """Says in `log` who waits for whom."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name, self.log = name, log

    def wait_stream(self, other: FakeStream) -> None:
        self.log.append(f"{self.name} waits for {other.name}")


def test_a_stream_is_ordered_by_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The order of calls that CUDA asks for; what they do is seen on a GPU only, by the tests above."""
    log: list[str] = []
    main, side = FakeStream("main", log), FakeStream("side", log)

    class FakeTensor:
        def record_stream(self, stream: FakeStream) -> None:
            log.append(f"kept for {stream.name}")

    @contextlib.contextmanager
    def on(stream: FakeStream) -> Iterator[None]:
        log.append(f"on {stream.name}, thread {threading.current_thread().name.split('_')[0]}")
        yield

    def work() -> Any:
        log.append("work")
        return [FakeTensor()]

    monkeypatch.setattr(torch.cuda, "Stream", lambda _: side)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda *_: main)
    monkeypatch.setattr(torch.cuda, "stream", on)
    beside = Beside(torch.device("cuda"))
    beside.finish()
    assert log == []
    beside.start(work)
    beside.finish()
    assert log == ["side waits for main", "on side, thread beside", "work", "main waits for side", "kept for main"]
    beside.finish()
    assert len(log) == 5

    def interrupted(_: FakeStream) -> None:
        monkeypatch.setattr(main, "wait_stream", wait)
        raise KeyboardInterrupt

    wait = main.wait_stream
    monkeypatch.setattr(main, "wait_stream", interrupted)
    beside.start(work)
    with pytest.raises(KeyboardInterrupt):
        beside.finish()
    beside.finish()
    assert log[-2:] == ["main waits for side", "kept for main"]
    beside.close()


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
