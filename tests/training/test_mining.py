"""Mining: how alike readings are, which samples are kept, and that a stopped run goes on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mineru_diffusion.engine import LocalEngine, Request, Result
from mineru_diffusion.errors import UsageError
from mineru_diffusion.synthesis.sample import Sample
from mineru_diffusion.synthesis.shards import read_shards, write_shards
from mineru_diffusion.training.mining import SCORES, Score, choose, mine, variants
from mineru_diffusion.training.scoring import consistency, similarity
from mineru_diffusion.training.shards import shard_files
from tests.tiny import random_checkpoint


def test_similarity_by_task() -> None:
    assert similarity("text", "abcd", "abxd") == pytest.approx(0.75)
    assert similarity("formula", r"\frac{a}{b}", r"\frac {a} {b}") == 1.0
    assert similarity("table", "<fcel>a<fcel>b<nl>", "<fcel>a<fcel>b<nl>") == 1.0
    assert 0.0 < similarity("table", "<fcel>a<fcel>b<nl>", "<fcel>a<nl>") < 1.0
    assert similarity("table", "no table", "<fcel>a<nl>") < 1.0
    assert similarity("table", "<fcel>a<nl>", "") == 0.0
    box = "<|box_start|>{} 0 {} 1000<|box_end|><|ref_start|>text<|ref_end|><|rotate_up|>"
    assert similarity("layout", box.format(0, 500), box.format(0, 1000)) == pytest.approx(0.5)


def test_consistency_is_the_mean_over_pairs() -> None:
    assert consistency("text", ["abcd", "abcd", "abxd"]) == pytest.approx((1.0 + 0.75 + 0.75) / 3)
    assert consistency("text", ["a"]) == 1.0


def test_the_uncertain_share_of_each_task_is_kept() -> None:
    texts = [Score(i, "text", i / 10, 0.5) for i in range(10)]
    tables = [Score(10 + i, "table", 1 - i / 10, 0.5) for i in range(10)]
    assert choose([*texts, *tables], 0.3) == [0, 1, 2, 17, 18, 19]


def test_variants() -> None:
    cautious, *_, rash = variants(4, "thresholds", 0.0)
    assert (cautious.threshold, rash.threshold) == (1.0, pytest.approx(0.4))
    assert len({p.seed for p in variants(4, "temperature", 0.7)}) == 4
    with pytest.raises(UsageError, match="at least two"):
        variants(1, "temperature", 0.7)
    with pytest.raises(UsageError, match="temperature above 0"):
        variants(2, "temperature", 0.0)


class Stopped(Exception):
    """The run is interrupted."""


class CountingEngine(LocalEngine):
    """Counts requests, and stops at the `limit`-th call."""

    def __init__(self, limit: int = 100) -> None:
        super().__init__(random_checkpoint())
        self.requests, self.limit = 0, limit

    def generate(self, requests: Sequence[Request]) -> list[Result]:
        self.limit -= 1
        if self.limit < 0:
            raise Stopped
        self.requests += len(requests)
        return super().generate(requests)


def test_mines_shards_and_goes_on_after_a_stop(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    samples = [
        Sample(rng.integers(0, 256, (32, 64), dtype=np.uint8), "text", f"line {i}", source={"index": i})
        for i in range(6)
    ]
    write_shards(samples, tmp_path / "pool", shard_size=4)
    out = tmp_path / "hard"
    settings = {"draws": 2, "keep": 0.5, "batch": 2, "temperature": 1.5}
    with CountingEngine(limit=2) as engine, pytest.raises(Stopped):
        mine([tmp_path / "pool"], engine, out, factor=16, **settings)
    with (out / SCORES).open("a", encoding="utf-8") as log:
        # As a run that is killed in the middle of a write leaves it.
        log.write('{"index": 4, "task": "te')
    with CountingEngine() as engine:
        with pytest.raises(UsageError, match="another model"):
            mine([tmp_path / "pool"], engine, out, factor=16, model="other", **settings)
        report = mine([tmp_path / "pool"], engine, out, factor=16, **settings)
        assert engine.requests == 4
        assert (report.scored, report.kept) == (6, 3)
        assert 0.0 <= report.unanimous["text"] < 1.0
        assert report.kept_consistency["text"] <= report.consistency["text"] < 1.0
        with pytest.raises(UsageError, match="mined shards already"):
            mine([tmp_path / "pool"], engine, out, factor=16, **settings)
        whole = mine([tmp_path / "pool"], engine, tmp_path / "again", factor=16, **settings)
    assert whole == report
    scores = [json.loads(line) for line in (out / SCORES).read_text().splitlines()[1:]]
    kept = list(read_shards(shard_files(out)))
    assert len(kept) == 3
    for sample in kept:
        index = sample.source["index"]
        assert sample.target == f"line {index}"
        assert np.array_equal(sample.image, samples[index].image)
        assert sample.source["consistency"] == pytest.approx(scores[index]["consistency"], abs=1e-4)
    left_out = [s["consistency"] for s in scores if s["index"] not in {k.source["index"] for k in kept}]
    assert max(s.source["consistency"] for s in kept) <= min(left_out) + 1e-4


def test_what_the_checkpoint_cannot_read_is_left_out(tmp_path: Path) -> None:
    grey = np.full((32, 64), 128, dtype=np.uint8)
    samples = [
        Sample(grey, "text", "a line", source={"index": 0}),
        Sample(grey, "text", "two\nlines", source={"index": 1}),
        Sample(grey, "text", "a paragraph", source={"index": 2, "lines": 3}),
        Sample(grey, "table", "<fcel>a<nl>", source={"index": 3}),
        Sample(grey, "text", "one more", source={"index": 4, "lines": 1}),
    ]
    write_shards(samples, tmp_path / "pool")
    done: list[int] = []
    with LocalEngine(random_checkpoint()) as engine:
        assert engine.profile.text_unit == "line"
        engine._profile = replace(engine.profile, tasks=("text",))
        settings = {"factor": 16, "draws": 2, "keep": 1.0, "batch": 1}
        report = mine([tmp_path / "pool"], engine, tmp_path / "hard", progress=done.append, **settings)
        write_shards(samples[1:4], tmp_path / "unreadable")
        with pytest.raises(UsageError, match=r"no samples that the checkpoint can read .* reads text line by line"):
            mine([tmp_path / "unreadable"], engine, tmp_path / "none", **settings)
    assert (report.scored, report.kept, report.left_out) == (2, 2, {"table": 1, "text": 2})
    assert [s.source["index"] for s in read_shards(shard_files(tmp_path / "hard"))] == [0, 4]
    assert done == [1, 5, 5]
