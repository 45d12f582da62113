"""`eval` and `eval-olmocr` from the command line, with engines that know nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from PIL import Image, ImageDraw
from typer.testing import CliRunner

from mineru_diffusion.cli import app
from mineru_diffusion.engine.types import CheckpointProfile, Request, Result
from mineru_diffusion.evaluation import lines

pytest.importorskip("wordfreq")

runner = CliRunner()


class BlankEngine:
    """Reads nothing, one token a pass."""

    profile = CheckpointProfile(tasks=("text",), text_unit="line", line_height=32)
    image_factor = 32

    def __init__(self) -> None:
        self.counters = SimpleNamespace(passes=0)
        self.closed = False

    def generate(self, requests: Sequence[Request]) -> list[Result]:
        self.counters.passes += 2 * len(requests)
        return [Result("", (7,), (0.5,), (1,), nfe=2) for _ in requests]

    def __enter__(self) -> BlankEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> BlankEngine:
    blank = BlankEngine()
    monkeypatch.setattr(lines, "load_engine", lambda *_, **__: blank)
    return blank


def call(*arguments: object) -> tuple[int, str]:
    result = runner.invoke(app, [str(a) for a in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout if result.exit_code == 0 else result.output


def test_lines_by_threshold_as_ever(engine: BlankEngine, tmp_path: Path) -> None:
    code, output = call("eval", "--lines", 4, "--thresholds", "0.5,1", "--out", tmp_path / "e.json")
    assert code == 0
    head, *rows = [line.split() for line in output.splitlines()]
    assert head[:2] == ["threshold", "cer"]
    assert [row[:2] for row in rows] == [["0.5", "1"], ["1", "1"]]
    assert engine.closed
    written = json.loads((tmp_path / "e.json").read_text())
    assert [score["tokens_per_pass"] for score in written["scores"]] == [0.5, 0.5]
    assert len(written["truths"]) == 4


def test_tasks_against_their_floors(engine: BlankEngine, tmp_path: Path) -> None:
    code, output = call("eval", "--tasks", "table, text", "--lines", 4, "--out", tmp_path / "t.json")
    assert code == 0
    rows = {line.split()[0]: line for line in output.splitlines()}
    assert list(rows) == ["task", "text", "text-degraded", "table"]
    assert "misses the floor" in rows["text"]
    assert "not offered" in rows["table"]
    assert engine.closed
    assert [row["passed"] for row in json.loads((tmp_path / "t.json").read_text())["tasks"]] == [False, False, None]


def test_policies_and_picture(engine: BlankEngine, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    options = ("--lines", 2, "--policies", "threshold,fixed", "--thresholds", "0.5", "--plot", tmp_path / "c.png")
    code, output = call("eval", *options, "--out", tmp_path / "c.json")
    assert code == 0
    assert "99.9% of the accuracy kept, threshold: 0.50 tokens a pass at 0.5, 1.00 times one token a step" in output
    assert (tmp_path / "c.png").stat().st_size > 5000
    points = json.loads((tmp_path / "c.json").read_text())["points"]
    assert [(p["policy"], p["value"]) for p in points] == [
        ("threshold", 0.5), ("fixed", 4), ("fixed", 8), ("fixed", 16),
    ]  # fmt: skip
    assert engine.closed


@pytest.mark.parametrize(
    "wrong",
    [("--tasks", "smell"), ("--tasks", "text", "--plot", "a.png"), ("--policies", "best"), ("--tasks", ",")],
)
def test_wrong_calls(engine: BlankEngine, wrong: tuple[str, ...]) -> None:
    code, output = call("eval", *wrong)
    assert code == 2
    assert "error: " in output


def test_olmocr_scores_given_markdown(tmp_path: Path) -> None:
    tests = tmp_path / "tests.jsonl"
    rows = [
        {"id": "1", "pdf": "a.pdf", "page": 1, "type": "present", "text": "here"},
        {"id": "2", "pdf": "a.pdf", "page": 1, "type": "absent", "text": "here"},
        {"id": "3", "pdf": "b.pdf", "page": 1, "type": "absent", "text": "here"},
    ]
    tests.write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "a.md").write_text("it is here")
    code, output = call("eval-olmocr", tests, "--markdown", tmp_path, "--out", tmp_path / "o.json")
    assert code == 0
    assert [line.split() for line in output.splitlines()[:3]] == [
        ["present", "1", "of", "1", "100.0%"],
        ["absent", "0", "of", "1", "0.0%"],
        ["all", "1", "of", "2", "50.0%"],
    ]
    assert "b.pdf" in output
    assert json.loads((tmp_path / "o.json").read_text())["failed"] == ["2"]
    for wrong in ((), ("--oracle",), ("--markdown", tmp_path, "--documents", tmp_path)):
        assert call("eval-olmocr", tests, *wrong)[0] == 2


@pytest.mark.slow
def test_the_oracle_shows_what_the_layout_alone_loses(tmp_path: Path) -> None:
    """A page of pixels has no text layer, so that nothing is present; the words of one with a layer are."""
    typst = pytest.importorskip("typst")
    words = "The quick brown fox jumps over the lazy dog while nobody is looking at it from the window. " * 6
    (tmp_path / "a.typ").write_text(f"#set text(size: 12pt)\n{words}")
    typst.compile(str(tmp_path / "a.typ"), output=str(tmp_path / "set-a.pdf"))
    image = Image.new("RGB", (800, 600), "white")
    ImageDraw.Draw(image).text((100, 100), "quick brown fox", fill="black", font_size=40)
    image.save(tmp_path / "set-b.pdf")
    tests = tmp_path / "tests.jsonl"
    rows = [{"id": n, "pdf": f"{n}.pdf", "page": 1, "type": "present", "text": "quick brown fox"} for n in "ab"]
    tests.write_text("\n".join(map(json.dumps, rows)))
    code, output = call("eval-olmocr", tests, "--documents", tmp_path, "--oracle", "--out", tmp_path / "o.json")
    assert code == 0
    assert json.loads((tmp_path / "o.json").read_text())["failed"] == ["b"], output
