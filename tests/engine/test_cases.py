"""What fails for people who run such engines: cases D1 to D12, each with its own input. D1 to D4 need a decoder that
loops; a network that does is made by setting its vocabulary head."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from mineru_diffusion.engine import DecodingParams, LocalEngine, Request, load_engine
from mineru_diffusion.engine.devices import choose_device
from mineru_diffusion.engine.loops import repeating_tail
from mineru_diffusion.errors import CheckpointError
from mineru_diffusion.model.checkpoint import load_checkpoint
from tests.engine.test_engine import CROPS, SHORT, crop, same
from tests.tiny import random_checkpoint


@contextmanager
def head_that_says_one_thing() -> Iterator[None]:
    """Equal logits everywhere: the first token, for ever."""
    weight = random_checkpoint().model.language_model.lm_head.weight
    kept = weight.detach().clone()
    with torch.no_grad():
        weight.zero_()
    try:
        yield
    finally:
        with torch.no_grad():
            weight.copy_(kept)


def table_tokens(rows: int, columns: int, cell: list[int], row_end: int = 3, cell_token: int = 4) -> list[int]:
    """A table as a decoder writes it: a cell token and the cell's text, `columns` times, then the end of the row."""
    return ([cell_token, *cell] * columns + [row_end]) * rows


def test_d1_thirty_equal_rows_are_kept_and_a_loop_is_cut() -> None:
    """The real end is reached; a decoder that goes on for ever is stopped, and what came before is kept."""
    header = [90, 91, 92, 93, 94]
    table = table_tokens(rows=30, columns=3, cell=[20, 21, 22])
    assert repeating_tail(header + table) is None
    endless = header + table_tokens(rows=200, columns=3, cell=[20, 21, 22])
    keep = repeating_tail(endless)
    assert keep is not None
    assert endless[:keep] == header + table_tokens(rows=1, columns=3, cell=[20, 21, 22])
    with head_that_says_one_thing(), LocalEngine(random_checkpoint()) as engine:
        params = DecodingParams(threshold=0.0, max_tokens=2000, stop_ids=())
        (result,) = engine.generate([Request(CROPS[0], params=params)])
    assert result.finish_reason == "repetition"
    assert len(result.tokens) == 1


def test_d2_an_empty_grid_is_no_loop_and_an_endless_one_is_bounded() -> None:
    grid = table_tokens(rows=40, columns=4, cell=[])
    assert repeating_tail(grid) is None
    assert repeating_tail(grid * 3) is not None
    with head_that_says_one_thing(), LocalEngine(random_checkpoint()) as engine:
        params = DecodingParams(threshold=0.0, max_tokens=400, stop_ids=(), repetition_guard=False)
        (result,) = engine.generate([Request(CROPS[0], params=params)])
    assert len(result.tokens) == 400


def test_d3_a_looping_request_leaves_the_others_alone() -> None:
    """One of four goes round in circles (greedy, with a threshold that takes everything); the others are what they are
    without it."""
    looping = DecodingParams(threshold=0.0, max_tokens=3000, stop_ids=())
    others = [Request(image, params=SHORT) for image in (CROPS[1], CROPS[2], CROPS[4])]
    with LocalEngine(random_checkpoint()) as engine:
        alone = engine.generate(others)
        together = engine.generate([others[0], Request(CROPS[0], params=looping), *others[1:]])
    assert together[1].finish_reason in ("repetition", "length")
    for left, right in zip([together[0], *together[2:]], alone, strict=True):
        same(left, right)


def test_d4_a_legitimate_table_does_not_trip_the_guard() -> None:
    rule = [7] * 180
    row = [4, *range(30, 42), 3]
    assert repeating_tail([1, 2, *rule]) is None
    assert repeating_tail(rule + row * 20) is None
    assert repeating_tail(row * 20 + rule) is None


@pytest.mark.parametrize("limit", [3, 300])
def test_d5_max_tokens_is_honoured_exactly(limit: int) -> None:
    params = DecodingParams(threshold=0.2, max_tokens=limit, stop_ids=(), repetition_guard=False)
    with LocalEngine(random_checkpoint()) as engine:
        (result,) = engine.generate([Request(crop(640, 3), params=params)])
    assert (len(result.tokens), result.finish_reason) == (limit, "length")


@pytest.mark.parametrize("noise", [0, 6, 20])
def test_d6_a_white_crop_invents_nothing(noise: int) -> None:
    """The packaged checkpoint on nothing at all, with and without faint noise."""
    pixels = np.full((32, 224, 3), 255, dtype=np.int16)
    pixels -= np.random.default_rng(0).integers(0, noise + 1, pixels.shape, dtype=np.int16)
    with load_engine(device="cpu") as engine:
        (result,) = engine.generate([Request(Image.fromarray(pixels.astype(np.uint8)))])
    assert (result.finish_reason, result.text, result.nfe) == ("stop", "", 0)


def test_d7_alone_and_in_a_batch() -> None:
    requests = [Request(image, params=SHORT) for image in CROPS]
    with LocalEngine(random_checkpoint()) as engine:
        together = engine.generate(requests)
        same(engine.generate([requests[3]])[0], together[3])


def test_d8_no_special_token_in_the_text() -> None:
    checkpoint = random_checkpoint()
    vocabulary = checkpoint.processor.tokenizer.get_vocab()
    ids = [vocabulary[token] for token in ("<|MASK|>", "<|im_end|>", "<|endoftext|>") if token in vocabulary]
    letters = [i for token, i in vocabulary.items() if token in ("a", "b")]
    text = checkpoint.processor.decode([letters[0], *ids, letters[1]])
    assert sorted(text) == ["a", "b"]
    structural = [vocabulary[token] for token in ("<fcel>", "<nl>", "<|box_start|>") if token in vocabulary]
    for token in structural:
        assert checkpoint.processor.decode([token])


def test_d9_a_mask_that_disagrees_with_the_tokenizer(tmp_path: Path) -> None:
    from mineru_diffusion.assets import packaged_checkpoint

    for file in packaged_checkpoint().iterdir():
        if file.name == "config.json":
            text = file.read_text(encoding="utf-8")
            (tmp_path / file.name).write_text(
                text.replace('"mask_token_id": 8', '"mask_token_id": 9'), encoding="utf-8"
            )
            assert '"mask_token_id": 9' in (tmp_path / file.name).read_text(encoding="utf-8")
        else:
            (tmp_path / file.name).symlink_to(file)
    with pytest.raises(CheckpointError, match="mask_token_id 9"):
        load_checkpoint(tmp_path)


def test_d10_prompts_of_exactly_some_blocks() -> None:
    """The same text both times, on pages that were used before."""
    with LocalEngine(random_checkpoint()) as engine:
        length = engine.loop.block_length
        seen = set()
        for extra in range(length):
            request = Request(CROPS[0], prompt="x" * extra, params=SHORT)
            first, second = engine.generate([request])[0], engine.generate([request])[0]
            same(first, second)
            seen.add(first.prompt_tokens % length)
    assert 0 in seen


def test_d11_a_pool_for_one_sequence() -> None:
    """Two requests where only one fits at a time, and one that never does."""
    params = replace(SHORT, stop_ids=())
    with LocalEngine(random_checkpoint()) as engine:
        expected = engine.generate([Request(image, params=params) for image in CROPS[:2]])
        page = engine._page_bytes
        largest = max(engine.loop.cache.pages_for(result.prompt_tokens + 32) for result in expected)
    with LocalEngine(random_checkpoint(), cache_bytes=page * largest) as engine:
        huge = Request(CROPS[0], params=DecodingParams(max_tokens=4096))
        first, failed, second = engine.generate(
            [Request(CROPS[0], params=params), huge, Request(CROPS[1], params=params)]
        )
    same(first, expected[0])
    same(second, expected[1])
    assert failed.finish_reason == "error"
    assert f"the cache has {largest}" in failed.error


def test_d12_a_device_is_found_without_a_storm_of_warnings() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        device = choose_device("auto")
        with LocalEngine(random_checkpoint()) as engine:
            engine.generate([Request(CROPS[0], params=SHORT)])
    assert device.type in ("cpu", "cuda", "mps")
