"""FlexAttention over the cache against SDPA: on rows of mixed lengths, and in the whole engine."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mineru_diffusion.engine import LocalEngine, Request, kernels
from mineru_diffusion.engine.cache import PagedCache
from mineru_diffusion.engine.kernels import choose_kernel, flex, flex_problem, sdpa
from mineru_diffusion.engine.rows import Mixer, Run
from mineru_diffusion.errors import UsageError
from mineru_diffusion.model.flex import TILE, prefix_mask
from tests.engine.test_engine import CROPS, SHORT, same
from tests.tiny import DEVICE, random_checkpoint

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without")

BLOCK, HEADS, REPEATS, WIDTH = 8, 2, 2, 16
CPU = torch.device("cpu")


def random_cache(pages: int, seed: int) -> PagedCache:
    cache = PagedCache(
        layers=1, kv_heads=HEADS, head_dim=WIDTH, page_tokens=BLOCK, max_pages=pages, dtype=torch.float32, device=DEVICE
    )
    cache.allocate(pages)
    generator = torch.Generator().manual_seed(seed)
    for store in (cache.keys[0], cache.values[0]):
        store.copy_(torch.randn(store.shape, generator=generator))
    return cache


def random_runs(sizes: list[tuple[int, int]], seed: int) -> tuple[list[Run], int]:
    """Runs of sequences of so many blocks, of which the last so many are new, on pages that are scattered; and the
    number of pages."""
    pages = np.random.default_rng(seed).permutation(sum(blocks for blocks, _ in sizes))
    runs, at = [], 0
    for blocks, fresh in sizes:
        slots = (pages[at : at + blocks, None] * BLOCK + np.arange(BLOCK)).ravel()
        start = (blocks - min(fresh, blocks)) * BLOCK
        runs.append(Run(slots, start, blocks * BLOCK, BLOCK, 0))
        at += blocks
    return runs, at


rows_of_mixed_lengths = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 5)), min_size=1, max_size=6)


@settings(max_examples=10, deadline=None)
@given(rows_of_mixed_lengths, st.integers(0, 9))
def test_kernels_agree_on_rows_of_mixed_lengths(sizes: list[tuple[int, int]], seed: int) -> None:
    runs, pages = random_runs(sizes, seed)
    cache = random_cache(pages, seed)
    count = sum(run.stop - run.start for run in runs)
    q = torch.randn((count, HEADS * REPEATS, WIDTH), generator=torch.Generator().manual_seed(seed + 1)).to(DEVICE)
    dense, sparse = (Mixer(cache, runs, REPEATS, kernel).mix(0, q) for kernel in (sdpa, flex))
    close = 1e-5 if DEVICE.type == "cpu" else 1e-3
    torch.testing.assert_close(sparse, dense, atol=close, rtol=close)


def test_the_sparse_mask_touches_the_tiles_that_are_seen() -> None:
    """What is skipped on CUDA, which the plain form does not look at."""
    visible = torch.tensor([[1, 128, 129], [300, 5, 5]]).repeat_interleave(100, dim=1)
    mask = prefix_mask(visible, 300)
    seen = torch.arange(3 * TILE) < torch.nn.functional.pad(visible, (0, 3 * TILE - 300))[:, :, None]
    expected = seen.view(2, 3, TILE, 3, TILE).any(dim=4).any(dim=2)
    assert torch.equal(mask.to_dense()[:, 0].bool(), expected)


def test_the_engine_reads_the_same_with_both() -> None:
    requests = [Request(image, params=SHORT) for image in CROPS]
    with LocalEngine(random_checkpoint(), kernel="sdpa") as engine:
        expected = engine.generate(requests)
    with LocalEngine(random_checkpoint(), kernel="flex") as engine:
        for left, right in zip(engine.generate(requests), expected, strict=True):
            same(left, right)


SIZES = {"heads": HEADS, "repeats": REPEATS, "length": BLOCK, "width": WIDTH}


def test_kernels_by_name(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    assert choose_kernel("auto", CPU, torch.float32, **SIZES) is sdpa
    assert choose_kernel("flex", CPU, torch.float32, **SIZES) is flex
    with pytest.raises(UsageError, match="use auto, sdpa, flex"):
        choose_kernel("paged", CPU, torch.float32, **SIZES)
    cuda = torch.device("cuda")
    monkeypatch.setattr(kernels, "flex_problem", lambda *_: "")
    assert choose_kernel("auto", cuda, torch.bfloat16, **SIZES) is flex
    monkeypatch.setattr(kernels, "flex_problem", lambda *_: "RuntimeError: no compiler\nand more")
    with caplog.at_level(logging.WARNING):
        assert choose_kernel("auto", cuda, torch.bfloat16, **SIZES) is sdpa
    assert [record.getMessage().endswith("RuntimeError: no compiler") for record in caplog.records] == [True]


def test_flex_is_tried_before_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = (HEADS, REPEATS, BLOCK, WIDTH)
    flex_problem.cache_clear()
    assert flex_problem(CPU, torch.float32, *sizes) == ""
    flex_problem.cache_clear()
    # One that sees everything is wrong, and one that fails cannot be used.
    monkeypatch.setattr(kernels, "flex", lambda *_: torch.nn.functional.scaled_dot_product_attention)
    assert flex_problem(CPU, torch.float32, *sizes).startswith("AssertionError")
    flex_problem.cache_clear()

    def broken(*_: object) -> None:
        raise ImportError("no such kernel")

    monkeypatch.setattr(kernels, "flex", broken)
    assert flex_problem(CPU, torch.float32, *sizes) == "ImportError: no such kernel"
    flex_problem.cache_clear()
