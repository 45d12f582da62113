"""Passes in fixed shapes: padding must change nothing that is asked for. On the CPU a stand-in takes the place of the
graphs; on CUDA the same tests run with them."""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mineru_diffusion.engine import LocalEngine, Request, graphs
from mineru_diffusion.engine.cache import PagedCache
from mineru_diffusion.engine.forward import InferenceDecoder
from mineru_diffusion.engine.graphs import GraphedPasses, call_again, make_passes
from mineru_diffusion.engine.kernels import sdpa
from mineru_diffusion.engine.padding import CONTEXT_STEP, Shape, pad_rows, shape_of
from mineru_diffusion.engine.passes import PlainPasses
from mineru_diffusion.engine.rows import Run
from tests.engine.test_engine import CROPS, SHORT, same
from tests.engine.test_kernels import BLOCK, random_runs, rows_of_mixed_lengths
from tests.tiny import DEVICE, random_checkpoint

REQUESTS = [Request(image, params=SHORT) for image in CROPS]


def run_of(start: int, stop: int, first: int = 0) -> Run:
    return Run(first + np.arange(2048), start, stop, BLOCK, 0)


def test_shapes_are_few() -> None:
    for count, groups in ((1, 1), (2, 2), (3, 4), (5, 8), (64, 64), (65, 128)):
        assert shape_of([run_of(16, 24)] * count, BLOCK) == Shape(groups, BLOCK, CONTEXT_STEP)
    assert shape_of([run_of(16, 24), run_of(8, 24)], BLOCK) == Shape(2, 2 * BLOCK, CONTEXT_STEP)
    assert shape_of([run_of(16, 21)], BLOCK) == Shape(1, BLOCK, CONTEXT_STEP)
    assert shape_of([run_of(248, 256)], BLOCK) == Shape(1, BLOCK, CONTEXT_STEP)
    assert shape_of([run_of(256, 264)], BLOCK) == Shape(1, BLOCK, 2 * CONTEXT_STEP)


def test_what_does_not_pay_has_no_shape() -> None:
    assert shape_of([run_of(0, 17)], BLOCK) is None
    # One long sequence among short ones.
    assert shape_of([run_of(16, 24)] * 63 + [run_of(2032, 2040)], BLOCK) is None
    assert shape_of([run_of(16, 24), run_of(2032, 2040)], BLOCK) is not None


def test_rows_are_filled_up_with_what_belongs_to_nobody() -> None:
    runs = [run_of(8, 16, first=100), run_of(3, 8, first=4000)]
    rows = pad_rows(runs, Shape(4, BLOCK, CONTEXT_STEP), scratch=9999)
    slots = rows.slots.reshape(4, BLOCK)
    assert slots[0].tolist() == list(range(108, 116))
    assert slots[1].tolist() == [4003, 4004, 4005, 4006, 4007, 9999, 9999, 9999]
    assert (slots[2:] == 9999).all()
    keys = rows.keys.reshape(4, CONTEXT_STEP)
    assert keys[0, :16].tolist() == list(range(100, 116))
    assert (keys[0, 16:] == 100).all()
    assert (keys[2:] == 9999).all()
    assert rows.visible[0].tolist() == [16] * 8
    assert rows.places.tolist() == [*range(8), *range(8, 13)]
    assert rows.positions.reshape(4, BLOCK)[1].tolist() == [3, 4, 5, 6, 7, 0, 0, 0]


def cache_of(decoder: InferenceDecoder, pages: int) -> PagedCache:
    config = decoder.model.config
    cache = PagedCache(
        layers=config.num_hidden_layers,
        kv_heads=config.num_key_value_heads,
        head_dim=config.head_dim,
        page_tokens=BLOCK,
        max_pages=pages,
        dtype=torch.float32,
        device=DEVICE,
    )
    cache.allocate(pages)
    generator = torch.Generator().manual_seed(1)
    for store in (*cache.keys, *cache.values):
        store.copy_(torch.randn(store.shape, generator=generator))
    return cache


@settings(max_examples=25, deadline=None)
@given(rows_of_mixed_lengths, st.integers(0, 9), st.data())
def test_padding_changes_no_row(sizes: list[tuple[int, int]], seed: int, data: st.DataObject) -> None:
    decoder = InferenceDecoder(random_checkpoint().model.language_model.model)
    sizes = [(blocks, min(fresh, 2)) for blocks, fresh in sizes]
    runs, pages = random_runs(sizes, seed)
    asked = [(run.stop - BLOCK, run.stop) if data.draw(st.booleans()) else None for run in runs]
    some = np.flatnonzero(np.random.default_rng(seed).random(BLOCK * sum(a is not None for a in asked)) < 0.6)
    picked = data.draw(st.sampled_from([None, some]))
    count = sum(run.stop - run.start for run in runs)
    width = decoder.model.config.hidden_size
    x = torch.randn((count, width), generator=torch.Generator().manual_seed(seed)).to(DEVICE)
    outputs, caches = [], []
    for with_graphs in (False, True):
        cache = cache_of(decoder, pages)
        passes = make_passes(decoder, cache, sdpa, block_length=BLOCK, device=DEVICE, graphs=with_graphs)
        with torch.inference_mode():
            outputs.append(passes.plan(x.clone(), runs, asked, picked)())
        assert passes.graphed == (with_graphs and shape_of(runs, BLOCK) is not None)
        caches.append(cache)
    plain, padded = outputs
    if plain is None or padded is None:
        assert plain is padded
    else:
        torch.testing.assert_close(padded, plain, atol=1e-4, rtol=1e-4)
    for left, right in zip((*caches[0].keys, *caches[0].values), (*caches[1].keys, *caches[1].values), strict=True):
        behind = caches[0].scratch
        torch.testing.assert_close(right[:behind], left[:behind], atol=1e-4, rtol=1e-4)


def test_a_row_of_infinities_leaves_the_others_alone() -> None:
    decoder = InferenceDecoder(random_checkpoint().model.language_model.model)
    runs, pages = random_runs([(3, 1), (5, 1), (4, 1)], 0)
    asked = [(run.stop - BLOCK, run.stop) for run in runs]
    x = torch.randn((3 * BLOCK, decoder.model.config.hidden_size), device=DEVICE)
    hidden = []
    for broken in (False, True):
        cache = cache_of(decoder, pages)
        passes = make_passes(decoder, cache, sdpa, block_length=BLOCK, device=DEVICE, graphs=True)
        with torch.inference_mode():
            for _ in range(2):
                if broken:
                    x[BLOCK : 2 * BLOCK] = torch.inf
                out = passes.plan(x.clone(), runs, asked, None)()
        assert out is not None
        hidden.append(out.view(3, BLOCK, -1))
    torch.testing.assert_close(hidden[1][[0, 2]], hidden[0][[0, 2]])


@pytest.mark.filterwarnings("ignore:flex_attention called without")
@pytest.mark.parametrize("kernel", ["sdpa", "flex"])
@pytest.mark.parametrize("max_rows", [3, 64])
def test_the_engine_reads_the_same_with_graphs(kernel: str, max_rows: int) -> None:
    with LocalEngine(random_checkpoint(), kernel="sdpa", graphs=False, max_rows=max_rows) as engine:
        expected = engine.generate(REQUESTS)
        assert engine.counters.graphed == 0
    with LocalEngine(random_checkpoint(), kernel=kernel, graphs=True, max_rows=max_rows) as engine:
        for left, right in zip(engine.generate(REQUESTS), expected, strict=True):
            same(left, right)
        assert engine.counters.graphed > engine.counters.passes / 3


def test_by_default_on_cuda_only() -> None:
    with LocalEngine(random_checkpoint()) as engine:
        assert isinstance(engine.loop.passes, GraphedPasses if DEVICE.type == "cuda" else PlainPasses)


def counting_passes(
    monkeypatch: pytest.MonkeyPatch, record: Callable[[Callable[[], Tensor]], Callable[[], Tensor]] = call_again
) -> tuple[GraphedPasses, PagedCache, list[int]]:
    """Passes on a cache that can still grow, and a list that gets an entry for each recording."""
    decoder = InferenceDecoder(random_checkpoint().model.language_model.model)
    cache = cache_of(decoder, 64)
    cache.max_pages = 200
    recorded: list[int] = []

    def counted(function: Callable[[], Tensor]) -> Callable[[], Tensor]:
        recorded.append(1)
        return record(function)

    return GraphedPasses(PlainPasses(decoder, cache, sdpa), BLOCK, counted), cache, recorded


def rows(count: int) -> tuple[Tensor, list[Run], list[tuple[int, int] | None]]:
    runs, _ = random_runs([(2, 1)] * count, 0)
    x = torch.randn((count * BLOCK, random_checkpoint().model.config.text_config.hidden_size), device=DEVICE)
    return x, runs, [(run.start, run.stop) for run in runs]


@torch.inference_mode()
def test_shapes_are_recorded_once_until_the_cache_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    passes, cache, recorded = counting_passes(monkeypatch)
    for count in (3, 4, 3, 4, 4):
        passes.plan(*rows(count), None)()
    assert (len(recorded), passes.graphed) == (1, 5)
    cache.allocate()
    passes.plan(*rows(3), None)()
    assert len(recorded) == 2


@torch.inference_mode()
def test_few_shapes_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "MAX_GRAPHS", 2)
    passes, _, recorded = counting_passes(monkeypatch)
    for count in (1, 2, 1, 4, 1, 2):
        passes.plan(*rows(count), None)()
        assert len(passes._graphs) <= 2
    # 4 took the place of 2, which then took that of 4; 1 was always used since.
    assert len(recorded) == 4


@torch.inference_mode()
def test_what_cannot_be_recorded_runs_plainly(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(function: Callable[[], Tensor]) -> Callable[[], Tensor]:
        function()
        raise RuntimeError("operation not permitted when stream is capturing\nand more")

    passes, cache, recorded = counting_passes(monkeypatch, broken)
    plain = PlainPasses(InferenceDecoder(random_checkpoint().model.language_model.model), cache, sdpa)
    with caplog.at_level(logging.WARNING):
        for count in (3, 1, 3):
            x, runs, asked = rows(count)
            expected = plain.plan(x.clone(), runs, asked, None)()
            torch.testing.assert_close(passes.plan(x.clone(), runs, asked, None)(), expected)
    assert (len(recorded), passes.graphed) == (1, 0)
    assert [record.getMessage().endswith("is capturing") for record in caplog.records] == [True]
