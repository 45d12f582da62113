"""Images that cannot be cut or encoded, requests that are cancelled, passes that fail, interrupts: every request gets
its answer, with the eye between passes or beside them."""

from __future__ import annotations

from typing import Any

import pytest
from PIL import Image

from mineru_diffusion.engine import LocalEngine, Request
from mineru_diffusion.errors import EngineError
from tests.engine.test_engine import SHORT, crop, same
from tests.engine.test_overlap import REQUESTS, Grids, answers
from tests.tiny import random_checkpoint


@pytest.fixture
def broken() -> Image.Image:
    image = crop(64, 3)
    image.convert = _fails  # type: ignore[method-assign]
    return image


def _fails(*_: object, **__: object) -> Any:
    raise OSError("truncated")


def test_a_broken_image_fails_alone(broken: Image.Image) -> None:
    requests = [*REQUESTS[:6], Request(broken, params=SHORT), *REQUESTS[6:]]
    expected = answers()
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


ERRORS = [RuntimeError("no memory"), MemoryError("full"), ValueError("odd"), KeyError("what")]


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("error", ERRORS)
def test_what_goes_wrong_while_encoding_is_an_answer(
    error: Exception, overlap: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One image that the eye fails on, by itself or with others, fails alone; the engine goes on."""
    expected = answers()
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
    expected = answers()
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
    expected = answers()
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


def test_after_all_that_was_begun_is_cancelled_the_next_are_begun() -> None:
    expected = answers()
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
    expected = answers()
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
