"""Each benchmark runs at its smallest and gives sensible figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from mineru_diffusion.assets import packaged_checkpoint
from mineru_diffusion.benchmarks.ar import bench_ar
from mineru_diffusion.benchmarks.common import Turns, race, save, table
from mineru_diffusion.benchmarks.decode import bench_decode, decode_crops_plainly
from mineru_diffusion.benchmarks.roofline import DecoderPass, bench_roofline, matrix_weights
from mineru_diffusion.benchmarks.scale import bench_scale
from mineru_diffusion.cli import app
from mineru_diffusion.engine import DecodingParams, LocalEngine, Request
from mineru_diffusion.errors import UsageError
from tests.engine.test_engine import CROPS
from tests.tiny import random_checkpoint


def test_both_sides_of_the_decode_benchmark_give_the_same_tokens() -> None:
    checkpoint = random_checkpoint()
    params = DecodingParams(max_tokens=24, stop_ids=(), skip_after_stop=False, repetition_guard=False)
    plain = decode_crops_plainly(checkpoint, CROPS[:3], params)
    with LocalEngine(checkpoint) as engine:
        ours = engine.generate([Request(crop, params=params) for crop in CROPS[:3]])
    for left, right in zip(plain, ours, strict=True):
        assert left.tokens == list(right.tokens)
        assert left.steps == list(right.steps)
        # A pass for the prompt and one a block are what the engine does without.
        assert left.passes == right.nfe + 1 + 24 // checkpoint.profile.block_length


def test_the_decode_benchmark_reads_crops_one_by_one_and_together(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    bench_decode(crops=10, rounds=1, middle=False, out=tmp_path / "d.json", progress=lambda *at: told.append(at))
    assert told == [(over, 10) for over in range(1, 11)]
    rows = json.loads((tmp_path / "d.json").read_text(encoding="utf-8"))["rows"]
    assert [(row["crops"], row["ours"]) for row in rows] == [
        (crops, ours) for crops in ("8 x 1", "10") for ours in ("same work", "as it ships")
    ]
    # Positions behind the stop and late joins aside, the same tokens come out.
    assert [row["same tokens"] for row in rows[::2]] == ["8/8", "10/10"]
    assert rows[0]["tokens"] < rows[2]["tokens"]


def test_contestants_take_turns() -> None:
    turns: list[str] = []
    told: list[tuple[int, int]] = []
    count = Turns(6, lambda over, total: told.append((over, total)))
    times = race({name: lambda name=name: turns.append(name) for name in "ab"}, 2, count)  # type: ignore[misc]
    assert turns == ["a", "b"] * 3
    assert told == [(over, 6) for over in range(1, 7)]
    assert set(times) == {"a", "b"}


def test_tables_and_records(tmp_path: Path) -> None:
    rows = [{"what": "x", "ms": 1.23456}, {"what": "long", "ms": None}]
    lines = table(rows).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert "1.23" in lines[2]
    save(tmp_path / "new" / "x.json", "x", rows, more=1)
    record = json.loads((tmp_path / "new" / "x.json").read_text(encoding="utf-8"))
    assert record["rows"] == rows
    assert {"benchmark", "torch", "threads", "device", "more"} <= set(record)


def test_operations_grow_with_the_batch_and_the_context() -> None:
    checkpoint = random_checkpoint()
    one, four = (DecoderPass(checkpoint, n, 16, 8, asks=True) for n in (1, 4))
    assert four.operations == 4 * one.operations
    assert DecoderPass(checkpoint, 1, 64, 8, asks=True).operations > one.operations
    assert one.operations > 2 * 8 * matrix_weights(checkpoint.model.language_model.model.layers)
    four()
    assert torch.isfinite(four.loop.cache.keys[0]).all()


def test_wrong_calls() -> None:
    with pytest.raises(UsageError, match="autoregressive"):
        bench_ar(twin=packaged_checkpoint())
    for arguments, message in (
        (["nothing"], "unknown benchmark"),
        (["decode", "--plot", "x.png"], "does not take --plot"),
    ):
        result = CliRunner().invoke(app, ["bench", *arguments])
        assert result.exit_code == 2
        assert message in result.output


def test_progress_ends_when_all_turns_are_over() -> None:
    told: list[tuple[int, int]] = []

    def tell(over: int, total: int) -> None:
        told.append((over, total))

    bench_ar(batches=(8,), crops=8, rounds=1, progress=tell)
    bench_scale(lengths=(64,), requests=(2,), pages=2, rounds=1, progress=tell)
    bench_roofline(packaged_checkpoint(), batches=(1, 2), rounds=1, progress=tell)
    totals = (4, 5, 6)
    assert told == [(over, total) for total in totals for over in range(1, total + 1)]
