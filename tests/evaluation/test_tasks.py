"""Held-out sets, reading by task, and the report against the floors, with engines whose answers are known."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from mineru_diffusion.document.layout_grammar import format_layout
from mineru_diffusion.document.types import BBox
from mineru_diffusion.engine.types import CheckpointProfile, DecodingParams, Request, Result
from mineru_diffusion.errors import UsageError
from mineru_diffusion.evaluation import tasks
from mineru_diffusion.evaluation.held_out import HeldOut, held_out_samples
from mineru_diffusion.evaluation.reading import read_images
from mineru_diffusion.evaluation.tasks import FLOORS, evaluate_tasks, sets_of
from mineru_diffusion.synthesis import damage
from mineru_diffusion.synthesis.sample import LayoutBox, Sample

pytest.importorskip("wordfreq")

LINES = CheckpointProfile(tasks=("text",), text_unit="line", line_height=32, line_max_aspect=7.0)


class KnownEngine:
    """Answers by a function of the request; one pass and as many tokens as characters."""

    image_factor = 32

    def __init__(self, answer: Callable[[Request], str], profile: CheckpointProfile) -> None:
        self.answer, self.profile = answer, profile
        self.requests: list[Request] = []
        self.counters = SimpleNamespace(passes=0)
        self.closed = False

    def generate(self, requests: Sequence[Request]) -> list[Result]:
        self.requests += requests
        self.counters.passes += len(requests)
        texts = [self.answer(request) for request in requests]
        return [Result(t, tuple(map(ord, t)), (0.5,) * len(t), tuple(range(1, len(t) + 1)), nfe=2) for t in texts]

    def __enter__(self) -> KnownEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True


def fake_samples(monkeypatch: pytest.MonkeyPatch, **targets: list[Sample]) -> None:
    def chosen(name: HeldOut, number: int, **_: object) -> list[tuple[Sample, bool]]:
        samples = targets[FLOORS[name].task]
        return [(sample, i == len(samples) - 1) for i, sample in enumerate(samples)]

    monkeypatch.setattr(tasks, "held_out_samples", chosen)


def sample(task: Any, target: str, *layout: LayoutBox) -> Sample:
    return Sample(np.full((40, 60), 255, np.uint8), task, target, layout)


def in_turn(*answers: str) -> Callable[[Request], str]:
    numbers = count()
    return lambda _: answers[next(numbers)]


def run(engine: KnownEngine, *names: str, **options: Any) -> list[tasks.TaskScore]:
    return evaluate_tasks(tasks=names, engine=engine, **options)  # type: ignore[arg-type]


def test_formulas_and_tables_are_held_against_their_floors(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    table = "<fcel>ab<fcel>cd<nl><fcel>ef<fcel>gh<nl>"
    fake_samples(
        monkeypatch,
        formula=[sample("formula", "a+b"), sample("formula", "x^{2}")],
        table=[sample("table", table), sample("table", table)],
    )
    # One formula of two has one of three tokens wrong; one table of two has half of one of six nodes wrong.
    answers = in_turn("a+c", "x^2", table, table.replace("cd", "cx"))
    formula, tabular = run(KnownEngine(answers, CheckpointProfile()), "table", "formula", out=tmp_path / "r.json")
    assert formula.figure == pytest.approx((2 / 3 + 1) / 2)
    assert (formula.verdict, formula.more["exact"], formula.unseen_fonts) == ("misses the floor", 0.5, 1.0)
    assert tabular.figure == pytest.approx(1 - 0.5 / 6 / 2)
    assert tabular.unseen_fonts == pytest.approx(1 - 0.5 / 6)
    assert (tabular.verdict, tabular.more) == ("passed", {"TEDS-structure": 1.0})
    written = json.loads((tmp_path / "r.json").read_text())
    assert [row["verdict"] for row in written["tasks"]] == ["misses the floor", "passed"]
    assert [row["answer"] for row in written["answers"]["formula"]] == ["a+c", "x^2"]


def test_layouts(monkeypatch: pytest.MonkeyPatch) -> None:
    boxes: list[BBox] = [(0.1, 0.1, 0.9, 0.3), (0.1, 0.4, 0.9, 0.9)]
    truth = [LayoutBox("title", boxes[0]), LayoutBox("text", boxes[1])]
    fake_samples(monkeypatch, layout=[sample("layout", "", *truth)])
    from mineru_diffusion.document.layout_grammar import LayoutBox as Written

    answer = format_layout([Written("text", boxes[1]), Written("text", boxes[0])])
    engine = KnownEngine(lambda _: answer, CheckpointProfile(layout_image_size=(64, 48)))
    (score,) = run(engine, "layout")
    assert engine.requests[0].image is not None
    assert engine.requests[0].image.size == (64, 48)
    assert score.figure == pytest.approx(0.5)
    assert score.more["F1 any kind"] == 1
    assert score.more["order"] == 1
    assert score.more["page IoU"] == pytest.approx(1)


def test_what_is_not_declared_is_only_measured_by_force(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_samples(monkeypatch, formula=[sample("formula", "a+b")])
    engine = KnownEngine(lambda _: "a+b", LINES)
    (score,) = run(engine, "formula")
    assert (score.verdict, score.figure, engine.requests) == ("not offered", None, [])
    (score,) = run(engine, "formula", force=True)
    assert (score.verdict, score.figure) == ("passed (not offered)", 1.0)
    assert engine.requests[0].prompt == "\nFormula Recognition:"


def test_text_is_read_clean_and_degraded() -> None:
    """An engine that knows no letter: every line counts as wrong, and the crops are the checkpoint's lines."""
    engine = KnownEngine(lambda _: "", LINES)
    clean, worn = run(engine, "text", lines=12)
    assert (clean.name, worn.name) == ("text", "text-degraded")
    for score in (clean, worn):
        assert (score.figure, score.samples, score.unseen_fonts) == (1.0, 12, 1.0)
        assert score.verdict == "misses the floor"
    images = [request.image for request in engine.requests if request.image is not None]
    assert len(images) > 24
    assert all(image.height == 32 and image.width % 32 == 0 for image in images)


def test_degraded_lines_say_the_same_and_are_all_worn(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("the wrong kind of line")

    with monkeypatch.context() as patched:
        patched.setattr(damage, "print_clean", never)
        worn = held_out_samples("text-degraded", 20, seed=3)
    monkeypatch.setattr(damage, "print_worn", never)
    clean = held_out_samples("text", 20, seed=3)
    assert [s.target for s, _ in clean] == [s.target for s, _ in worn]
    assert [flag for _, flag in clean] == [False] * 18 + [True] * 2


def test_names_of_tasks() -> None:
    assert sets_of(["layout", "text"]) == ["text", "text-degraded", "layout"]
    for wrong in ([], ["smell"], ["text", "text-degraded"]):
        with pytest.raises(UsageError, match="use some of text, table, formula, layout"):
            sets_of(wrong)
    with pytest.raises(UsageError, match="at least 1"):
        evaluate_tasks(lines=0)


def test_long_lines_are_read_in_pieces_and_joined() -> None:
    image = Image.new("L", (900, 32), 255)
    for x in (20, 300, 600):
        image.paste(0, (x, 4, x + 150, 28))
    engine = KnownEngine(in_turn("one", "", *["three"] * 10), LINES)
    reading = read_images(engine, [image, image.crop((0, 0, 200, 32))], "text", DecodingParams(), multiple=32)  # type: ignore[arg-type]
    pieces = len(engine.requests)
    assert pieces > 2
    assert reading.texts[0].startswith("one three" if pieces > 3 else "one")
    assert reading.tokens_per_step == 1
    assert reading.tokens_per_pass == pytest.approx(sum(len(r.text) for r in reading.results) / (2 * pieces))
    assert reading.unfinished == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["formula", "table", "layout"])
def test_the_truth_scores_full_marks(name: HeldOut) -> None:
    pytest.importorskip("typst")
    chosen = held_out_samples(name, 4)
    assert [flag for _, flag in chosen] == [False, False, False, True]
    samples = [s for s, _ in chosen]
    figures = tasks._FIGURES[FLOORS[name].task]([s.target for s in samples], samples)
    assert figures[FLOORS[name].metric] == 1
