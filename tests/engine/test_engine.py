"""The row engine on a random network: what it decodes must not depend on how requests share passes."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from mineru_diffusion.diffusion.unmasking import ConfidenceThreshold, PrefixConfidence
from mineru_diffusion.engine import DecodingParams, Engine, LocalEngine, Request, Result
from mineru_diffusion.engine.cache import PagedCache
from mineru_diffusion.engine.requests import new_sequence
from mineru_diffusion.engine.types import CheckpointProfile
from mineru_diffusion.errors import EngineError, UsageError
from tests.tiny import random_checkpoint


def crop(width: int, seed: int) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 255, (32, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


CROPS = [crop(width, seed) for seed, width in enumerate((32, 320, 96, 608, 64, 192, 32, 448))]
SHORT = DecodingParams(threshold=0.3, max_tokens=30)


@pytest.fixture
def engine() -> Iterator[LocalEngine]:
    with LocalEngine(random_checkpoint()) as engine:
        yield engine


def same(left: Result, right: Result) -> None:
    assert left.tokens == right.tokens
    assert left.steps == right.steps
    assert left.finish_reason == right.finish_reason
    np.testing.assert_allclose(left.confidences, right.confidences, atol=1e-3)


def test_is_an_engine(engine: LocalEngine) -> None:
    assert isinstance(engine, Engine)


@pytest.mark.parametrize("max_rows", [2, 5, 64])
def test_alone_and_in_a_batch_of_mixed_sizes(engine: LocalEngine, max_rows: int) -> None:
    alone = [engine.generate([Request(image, params=SHORT)])[0] for image in CROPS]
    with LocalEngine(random_checkpoint(), max_rows=max_rows) as batched:
        together = batched.generate([Request(image, params=SHORT) for image in CROPS])
    for left, right in zip(alone, together, strict=True):
        same(left, right)


def test_each_request_has_its_own_settings(engine: LocalEngine) -> None:
    settings = [
        DecodingParams(policy="threshold", threshold=0.2, max_tokens=17),
        DecodingParams(policy="fixed", steps=3, max_tokens=24),
        DecodingParams(policy="factor", factor=1.5, max_tokens=9),
        DecodingParams(policy="entropy", gamma=4.0, max_tokens=16),
        DecodingParams(temperature=1.0, seed=3, max_tokens=16),
        DecodingParams(temperature=1.0, seed=4, max_tokens=16),
    ]
    requests = [Request(CROPS[1], params=params, tag=i) for i, params in enumerate(settings)]
    together = engine.generate(requests)
    assert [result.tag for result in together] == list(range(6))
    for request, result in zip(requests, together, strict=True):
        same(engine.generate([request])[0], result)
    assert together[4].tokens != together[5].tokens


def test_passes_are_shared(engine: LocalEngine) -> None:
    results = engine.generate([Request(image, params=SHORT) for image in CROPS])
    assert engine.counters.passes < sum(result.nfe for result in results) / 3
    assert engine.loop.cache.used == 0


@pytest.mark.parametrize("limit", [1, 7, 8, 9, 40])
def test_max_tokens_is_honoured_exactly(engine: LocalEngine, limit: int) -> None:
    (result,) = engine.generate([Request(CROPS[2], params=DecodingParams(max_tokens=limit, stop_ids=()))])
    assert len(result.tokens) == len(result.confidences) == len(result.steps) == limit
    assert result.finish_reason == "length"


def test_stops_at_the_earliest_stop(engine: LocalEngine) -> None:
    free = DecodingParams(threshold=0.3, max_tokens=40, stop_ids=(), skip_after_stop=False)
    (full,) = engine.generate([Request(CROPS[1], params=free)])
    for at in (0, 3, 12, 25):
        stop = full.tokens[at]
        first = full.tokens.index(stop)
        params = DecodingParams(threshold=0.3, max_tokens=40, stop_ids=(stop, 10**6), skip_after_stop=False)
        (result,) = engine.generate([Request(CROPS[1], params=params)])
        assert result.finish_reason == "stop"
        assert result.tokens == full.tokens[:first]
        assert result.nfe <= full.nfe


def test_a_decided_stop_ends_the_work_behind_it(engine: LocalEngine) -> None:
    (free,) = engine.generate([Request(CROPS[3], params=DecodingParams(threshold=1.0, max_tokens=8, stop_ids=()))])
    place = free.steps.index(1)
    stop = free.tokens[place]
    results, asked = [], []
    for skip in (False, True):
        before = engine.stats()
        params = DecodingParams(threshold=1.0, max_tokens=8, stop_ids=(stop,), skip_after_stop=skip)
        results += engine.generate([Request(CROPS[3], params=params)])
        asked.append(engine.stats().since(before).asked)
    for result in results:
        assert result.finish_reason == "stop"
        assert stop not in result.tokens
    # The first step asks for the whole block, those after it only for what is left before the stop.
    assert asked[1] <= 8 + sum(range(place + 1))
    assert asked[1] < asked[0]
    assert results[1].nfe <= results[0].nfe


def test_the_mask_is_never_predicted_and_never_in_the_text(engine: LocalEngine) -> None:
    model = random_checkpoint().model
    weight = model.language_model.lm_head.weight
    kept = weight[model.config.mask_token_id].clone()
    with torch.no_grad():
        weight[model.config.mask_token_id] = weight.mean(0) * 100
    try:
        (result,) = engine.generate([Request(CROPS[1], params=DecodingParams(max_tokens=32, stop_ids=()))])
    finally:
        with torch.no_grad():
            weight[model.config.mask_token_id] = kept
    assert model.config.mask_token_id not in result.tokens
    assert "<|" not in result.text.replace("<|box", "").replace("<|ref", "").replace("<|rotate", "")


def test_cancelled_requests_free_their_pages(engine: LocalEngine) -> None:
    ids = [engine.submit(Request(image, params=SHORT)) for image in CROPS]
    stream = engine.stream()
    first_id, _ = next(stream)
    victim = next(i for i in ids if i != first_id)
    assert engine.cancel(victim)
    assert not engine.cancel(victim)
    assert not engine.cancel(10**6)
    rest = dict(stream)
    assert rest[victim].finish_reason == "cancelled"
    assert {first_id, *rest} == set(ids)
    assert engine.loop.cache.used == 0


@pytest.mark.parametrize("room", [0, 1, 3, 9])
def test_a_small_cache_only_makes_requests_wait(room: int) -> None:
    """Requests wait for pages, or give theirs back to older ones and start over: the same output."""
    checkpoint = random_checkpoint()
    params = DecodingParams(threshold=0.3, max_tokens=40, stop_ids=())
    with LocalEngine(checkpoint) as roomy:
        expected = roomy.generate([Request(image, params=params) for image in CROPS])
        page = roomy._page_bytes
        largest = max(roomy.loop.cache.pages_for(result.prompt_tokens + 40) for result in expected)
    with LocalEngine(checkpoint, cache_bytes=page * (largest + room)) as tight:
        results = tight.generate([Request(image, params=params) for image in CROPS])
        assert tight.loop.cache.storage <= largest + room
        assert tight.loop.cache.used == 0
        if room == 9:
            assert tight.stats().preempted > 0
    for left, right in zip(results, expected, strict=True):
        same(left, right)


def test_a_request_larger_than_the_cache_fails_alone() -> None:
    checkpoint = random_checkpoint()
    with LocalEngine(checkpoint) as engine:
        page = engine._page_bytes
        (small,) = engine.generate([Request(CROPS[0], params=SHORT)])
        pages = engine.loop.cache.pages_for(small.prompt_tokens + 4000)
    with LocalEngine(checkpoint, cache_bytes=page * 20) as engine:
        big = Request(CROPS[0], params=DecodingParams(max_tokens=4000))
        results = engine.generate([Request(CROPS[0], params=SHORT), big, Request(CROPS[2], params=SHORT)])
    assert [result.finish_reason == "error" for result in results] == [False, True, False]
    assert f"{pages} cache pages" in results[1].error
    assert "the cache has 20" in results[1].error


def test_an_impossible_image_fails_alone(engine: LocalEngine) -> None:
    results = engine.generate([Request(crop(32 * 300, 0)), Request(CROPS[0], params=SHORT)])
    assert results[0].finish_reason == "error"
    assert "200 times" in results[0].error
    assert results[1].finish_reason != "error"


def test_an_image_that_cannot_be_decoded_fails_alone(engine: LocalEngine, tmp_path: Path) -> None:
    whole = io.BytesIO()
    CROPS[1].save(whole, "PNG")
    broken = Image.open(io.BytesIO(whole.getvalue()[:2000]))  # Pillow reads the pixels later
    results = engine.generate([Request(CROPS[0], params=SHORT), Request(broken), Request(CROPS[2], params=SHORT)])
    assert [result.finish_reason == "error" for result in results] == [False, True, False]
    assert "cannot be decoded" in results[1].error
    assert engine.loop.cache.used == 0
    assert engine.generate([Request(Image.new("RGB", (0, 5)))])[0].finish_reason == "error"


def test_a_failed_call_leaves_nothing_behind(engine: LocalEngine) -> None:
    bad = Request(CROPS[0], params=DecodingParams(temperature=-1.0))
    with pytest.raises(UsageError):
        engine.generate([Request(CROPS[0], params=SHORT), bad])
    assert list(engine.stream()) == []
    assert engine.generate([]) == []


def test_a_failed_pass_is_an_engine_error(engine: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Iterator[object]:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(engine.loop, "run_pass", fail)
    with pytest.raises(EngineError, match="out of memory"):
        engine.generate([Request(CROPS[0], params=SHORT)])
    monkeypatch.undo()
    assert engine.loop.cache.used == 0
    assert engine.generate([Request(CROPS[0], params=SHORT)])[0].finish_reason != "error"


def test_unknown_task_and_bad_parameters(engine: LocalEngine) -> None:
    with pytest.raises(UsageError, match="can do text"):
        engine.submit(Request(CROPS[0], task="table"))
    for bad in (DecodingParams(max_tokens=0), DecodingParams(threshold=2.0), DecodingParams(temperature=-1.0)):
        with pytest.raises(UsageError):
            engine.submit(Request(CROPS[0], params=bad))
    with pytest.raises(UsageError, match="unknown unmasking policy"):
        engine.submit(Request(CROPS[0], params=DecodingParams(policy="best")))  # type: ignore[arg-type]


def test_text_only_prompt(engine: LocalEngine) -> None:
    (result,) = engine.generate([Request(None, prompt="Hello", params=SHORT)])
    assert result.finish_reason in ("stop", "length")


def test_the_same_prompt_twice(engine: LocalEngine) -> None:
    """Whatever the prompt's length modulo the block, pages used before change nothing."""
    for width in range(32, 32 * 10, 32):
        first = engine.generate([Request(crop(width, 1), params=SHORT)])[0]
        same(engine.generate([Request(crop(width, 1), params=SHORT)])[0], first)


def test_results_of_earlier_requests_wait_for_the_stream(engine: LocalEngine) -> None:
    early = engine.submit(Request(CROPS[0], params=SHORT))
    engine.generate([Request(CROPS[1], params=SHORT)])
    assert early in dict(engine.stream())


def test_a_closed_engine_refuses(engine: LocalEngine) -> None:
    engine.close()
    with pytest.raises(EngineError, match="closed"):
        engine.submit(Request(CROPS[0]))


def test_a_loop_ends_with_its_flag(engine: LocalEngine) -> None:
    """A head that always says one token: the request ends by itself, with the reason."""
    head = random_checkpoint().model.language_model.lm_head
    kept = head.weight.detach().clone()
    with torch.no_grad():
        head.weight.zero_()
    try:
        params = DecodingParams(threshold=0.0, max_tokens=1000, stop_ids=())
        looping, guarded = engine.generate(
            [
                Request(CROPS[0], params=params),
                Request(
                    CROPS[0], params=DecodingParams(threshold=0.0, max_tokens=300, stop_ids=(), repetition_guard=False)
                ),
            ]
        )
    finally:
        with torch.no_grad():
            head.weight.copy_(kept)
    assert looping.finish_reason == "repetition"
    assert len(looping.tokens) == 1
    assert guarded.finish_reason == "length"
    assert len(guarded.tokens) == 300


def test_cache_runs_out_loudly() -> None:
    cache = PagedCache(
        layers=1, kv_heads=1, head_dim=4, page_tokens=2, max_pages=3, dtype=torch.float32, device=torch.device("cpu")
    )
    pages = [page for _ in range(3) for page in cache.allocate()]
    assert len(set(pages)) == 3
    with pytest.raises(EngineError, match="3 in all"):
        cache.allocate()
    cache.release(pages[:1])
    assert cache.allocate() == pages[:1]


def test_a_checkpoint_may_have_its_own_policy() -> None:
    plain = CheckpointProfile()
    own = replace(plain, policy="prefix")

    def policy(params: DecodingParams, profile: CheckpointProfile) -> object:
        return new_sequence(0, [1], params, profile, block_length=8, mask_id=5, default_stops=frozenset()).policy

    assert policy(DecodingParams(), plain) == ConfidenceThreshold(0.95)
    assert policy(DecodingParams(), own) == PrefixConfidence(0.95, 0.7)
    assert policy(DecodingParams(joint=0.5), own) == PrefixConfidence(0.95, 0.5)
    # Who names a threshold means the plain one: 1 is one token a step, whatever the checkpoint prefers.
    assert policy(DecodingParams(threshold=1.0), own) == ConfidenceThreshold(1.0)
    assert policy(DecodingParams(policy="prefix", threshold=0.9), plain) == PrefixConfidence(0.9, 0.7)
