"""Identical requests in flight are decoded once, and nobody notices."""

from __future__ import annotations

from mineru_diffusion.engine import LocalEngine, Request
from tests.engine.test_engine import CROPS, SHORT, crop, same
from tests.tiny import random_checkpoint


def test_identical_crops_are_decoded_once() -> None:
    with LocalEngine(random_checkpoint()) as engine:
        (alone,) = engine.generate([Request(CROPS[1], params=SHORT)])
        before = engine.stats()
        twins = [Request(crop(320, 1), params=SHORT, tag=i) for i in range(3)]
        results = engine.generate([*twins, Request(CROPS[2], params=SHORT)])
        done = engine.stats().since(before)
        assert (done.requests, done.images, done.shared) == (2, 2, 2)
        # Later ones start afresh: only what is in flight is shared.
        engine.generate([twins[0]])
        assert engine.stats().since(before).requests == 3
    assert [result.tag for result in results[:3]] == [0, 1, 2]
    for result in results[:3]:
        same(result, alone)


def test_other_settings_or_prompts_are_not_shared() -> None:
    with LocalEngine(random_checkpoint()) as engine:
        engine.generate(
            [
                Request(CROPS[1], params=SHORT),
                Request(CROPS[1], prompt="other", params=SHORT),
                Request(CROPS[1].transpose(0), params=SHORT),
            ]
        )
        assert engine.stats().shared == 0


def test_cancelling_one_of_two_leaves_the_other() -> None:
    with LocalEngine(random_checkpoint()) as engine:
        (alone,) = engine.generate([Request(CROPS[1], params=SHORT)])
        first, second = (engine.submit(Request(CROPS[1], params=SHORT, tag=i)) for i in range(2))
        assert engine.partial(second) == ()
        assert engine.cancel(first)
        assert not engine.cancel(first)
        results = dict(engine.stream())
        assert results[first].finish_reason == "cancelled"
        same(results[second], alone)
        assert results[second].tag == 1
        both = [engine.submit(Request(CROPS[1], params=SHORT)) for _ in range(2)]
        assert all(engine.cancel(request) for request in both)
        assert {result.finish_reason for _, result in engine.stream()} == {"cancelled"}
        assert engine.loop.cache.used == 0
