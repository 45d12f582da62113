"""The command line with a fake engine: exit codes, reports, page ranges, and what `--help` loads."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import get_args

import pytest
from typer.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parent / "parsing"))

from parsing_fakes import LINE_PROFILE, FakeEngine, FixedDetector, draw_lines, save_pdf

import mineru_diffusion.engine
from mineru_diffusion.cli import app
from mineru_diffusion.document.types import Region
from mineru_diffusion.engine.types import Policy, Result
from mineru_diffusion.errors import CheckpointError
from mineru_diffusion.parsing import folder

runner = CliRunner()
PAGE = draw_lines(["some words", "more words"])


@pytest.fixture(autouse=True)
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    fake = FakeEngine(profile=LINE_PROFILE)
    # Into the module's dictionary: asking for the attribute would load torch.
    monkeypatch.setitem(vars(mineru_diffusion.engine), "load_engine", lambda *a, **k: fake)
    detector = FixedDetector(Region("text", (0, 0, 1, 1), source={"layout": "fixed"}))
    monkeypatch.setattr(folder, "choose_detector", lambda engine, params=None: detector)
    return fake


def call(*arguments: object) -> tuple[int, str, str]:
    result = runner.invoke(app, [str(a) for a in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def test_parse_writes_and_reports(tmp_path: Path) -> None:
    path, out = save_pdf(tmp_path / "a.pdf", [PAGE] * 2), tmp_path / "out"
    code, stdout, stderr = call("parse", path, "-o", out, "--format", "md,json,html", "--debug", "--stats")
    assert code == 0
    assert stdout.strip() == str(out / "a")
    assert "1 ok" in stderr
    assert "2 page(s)" in stderr
    assert "tokens per pass" in stderr
    assert "4 crops (0 failed)" in stderr
    assert (out / "a" / "a.html").exists()
    assert (out / "a" / "a_layout.pdf").exists()


def test_one_bad_file_of_three(tmp_path: Path) -> None:
    data, out = tmp_path / "in", tmp_path / "out"
    data.mkdir()
    good = save_pdf(data / "a.pdf", [PAGE])
    (data / "b.pdf").write_bytes(good.read_bytes()[:500])
    save_pdf(data / "c.pdf", [PAGE])
    code, _, stderr = call("parse", data, "-o", out)
    assert code == 3
    assert "error:" in stderr
    assert "b.pdf" in stderr
    assert "2 ok, 1 failed" in stderr
    assert (out / "a" / "a.md").exists()
    assert (out / "c" / "c.md").exists()


def test_a_missing_input_fails_and_the_others_go_on(tmp_path: Path) -> None:
    path = save_pdf(tmp_path / "a.pdf", [PAGE])
    code, _, stderr = call("parse", tmp_path / "none.pdf", path, "-o", tmp_path / "out")
    assert code == 3
    assert "none.pdf" in stderr
    assert "1 ok, 1 failed" in stderr


@pytest.mark.parametrize(("spec", "indices"), [("1", [0]), ("2-3", [1, 2]), ("2-", [1, 2]), ("1,3", [0, 2])])
def test_page_ranges_count_from_one(tmp_path: Path, spec: str, indices: list[int]) -> None:
    path, out = save_pdf(tmp_path / "a.pdf", [PAGE] * 3), tmp_path / "out"
    assert call("parse", path, "-o", out, "--pages", spec)[0] == 0
    pages = json.loads((out / "a" / "a.json").read_text())["pages"]
    assert [p["index"] for p in pages] == indices


@pytest.mark.parametrize("spec", ["0-0", "5-2", "99", "x", ""])
def test_impossible_page_ranges_are_usage_errors(tmp_path: Path, spec: str) -> None:
    path = save_pdf(tmp_path / "a.pdf", [PAGE] * 3)
    code, _, stderr = call("parse", path, "-o", tmp_path / "out", "--pages", spec)
    assert code == 2
    assert "page range" in stderr
    # Only of one document can it be said that it has too few.
    assert ("a.pdf: page range" in stderr) == (spec == "99")


@pytest.mark.parametrize(
    "extra",
    [
        ["--threshold", "2"],
        ["--policy", "best"],
        ["--format", "docx"],
        ["--dpi", "0"],
        ["--max-rows", "0"],
        ["--max-tokens", "0"],
        ["--nonsense"],
    ],
    ids=lambda extra: extra[0],
)
def test_wrong_options_are_usage_errors(tmp_path: Path, extra: list[str], engine: FakeEngine) -> None:
    path = save_pdf(tmp_path / "a.pdf", [PAGE])
    assert call("parse", path, "-o", tmp_path / "out", *extra)[0] == 2
    assert engine.requests == []


def test_an_output_folder_that_is_a_file_is_a_usage_error(tmp_path: Path) -> None:
    path = save_pdf(tmp_path / "a.pdf", [PAGE])
    taken = tmp_path / "taken"
    taken.write_text("")
    assert call("parse", path, "-o", taken)[0] == 2


def test_a_checkpoint_that_does_not_load_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> FakeEngine:
        raise CheckpointError("x/: no config.json; name a checkpoint folder")

    monkeypatch.setitem(vars(mineru_diffusion.engine), "load_engine", refuse)
    path = save_pdf(tmp_path / "a.pdf", [PAGE])
    code, _, stderr = call("parse", path, "-o", tmp_path / "out", "--model", "x")
    assert code == 5
    assert stderr.strip() == "error: x/: no config.json; name a checkpoint folder"


def test_quiet_says_only_what_went_wrong(tmp_path: Path) -> None:
    path = save_pdf(tmp_path / "a.pdf", [PAGE])
    assert call("parse", path, "-o", tmp_path / "out", "--quiet") == (0, "", "")
    code, stdout, stderr = call("parse", tmp_path / "none.pdf", "-o", tmp_path / "out", "--quiet")
    assert (code, stdout) == (1, "")
    assert stderr.startswith("error:")


def test_a_second_run_is_unchanged(tmp_path: Path, engine: FakeEngine) -> None:
    path, out = save_pdf(tmp_path / "a.pdf", [PAGE]), tmp_path / "out"
    call("parse", path, "-o", out)
    asked = len(engine.requests)
    code, _, stderr = call("parse", path, "-o", out)
    assert code == 0
    assert "1 unchanged" in stderr
    assert len(engine.requests) == asked


def test_interrupting_ends_with_130(tmp_path: Path, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(request: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(engine, "_answer", interrupt)
    path = save_pdf(tmp_path / "a.pdf", [PAGE])
    code, _, stderr = call("parse", path, "-o", tmp_path / "out")
    assert code == 130
    assert "interrupted" in stderr
    assert engine.closed
    assert engine._queue == []


def test_eval_prints_a_row_for_every_threshold(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass
    class Score:
        threshold: float
        cer: float

    def fake(model: Path | None, *, thresholds: tuple[float, ...] = (0.5,), **rest: object) -> list[Score]:
        return [Score(t, 0.01) for t in thresholds]

    stub = ModuleType("lines")
    stub.evaluate_lines = fake  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mineru_diffusion.evaluation.lines", stub)
    code, stdout, _ = call("eval", "some/folder", "--thresholds", "0.7,0.95")
    assert code == 0
    assert [line.split() for line in stdout.splitlines()] == [["threshold", "cer"], ["0.7", "0.01"], ["0.95", "0.01"]]
    for wrong in ("2", "a", ",", "0"):
        assert call("eval", "some/folder", "--thresholds", wrong)[0] == 2


def test_train_hands_its_options_on(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[tuple[object, ...], dict[str, object]]] = []
    stub = ModuleType("trainer")
    stub.train = lambda *a, **k: seen.append((a, k))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mineru_diffusion.training.trainer", stub)
    code, _, _ = call("train", "c.yaml", "--out", "o", "--set", "a=1", "--set", "b=2", "--resume", "--time-limit", "3m")
    assert code == 0
    expected = {"resume": True, "overrides": ["a=1", "b=2"], "time_limit_minutes": 3.0, "quiet": False}
    assert seen == [((Path("c.yaml"), Path("o")), expected)]


def test_models_describes_the_packaged_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import mineru_diffusion.assets

    monkeypatch.setattr(mineru_diffusion.assets, "packaged_checkpoint", lambda: tmp_path)
    code, _, stderr = call("models")
    assert code == 5
    assert "config.json" in stderr
    (tmp_path / "config.json").write_text('{"text_config": {"num_hidden_layers": 4, "hidden_size": 256}}')
    (tmp_path / "generation_config.json").write_text('{"mineru_diffusion": {"tasks": ["text"], "text_unit": "line"}}')
    code, stdout, _ = call("models")
    assert code == 0
    assert "4 layers of width 256" in stdout
    assert "one line at a time" in stdout


@pytest.mark.parametrize("arguments", [["--help"], ["parse", "--help"], ["--version"]])
def test_help_and_version_load_nothing_heavy(arguments: list[str]) -> None:
    heavy = {"torch", "numpy", "transformers", "PIL", "onnxruntime", "pypdfium2", "cv2"}
    code = (
        "import sys\nfrom mineru_diffusion.cli import app\n"
        f"try:\n    app({arguments!r})\nexcept SystemExit as end:\n    code = end.code\n"
        f"print('LOADED', sorted({heavy!r} & set(sys.modules)), code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip().splitlines()[-1] == "LOADED [] 0"


@pytest.mark.parametrize("command", ["parse", "eval"])
def test_help_names_every_policy(command: str) -> None:
    shown = runner.invoke(app, [command, "--help"]).output
    assert [name for name in get_args(Policy) if name not in shown] == []


def test_importing_the_package_loads_nothing() -> None:
    heavy = "{'torch', 'numpy', 'PIL'} & set(sys.modules)"
    code = f"import sys, mineru_diffusion as m; print(len({heavy}), m.__version__ != '')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["0", "True"]


def test_importing_parsing_loads_no_torch() -> None:
    code = "import sys, mineru_diffusion as m; m.parse, m.parse_many, m.Document; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "False"


def test_every_public_name_is_there() -> None:
    import mineru_diffusion

    assert all(getattr(mineru_diffusion, name) is not None for name in mineru_diffusion.__all__)
    assert set(mineru_diffusion.__all__) <= set(dir(mineru_diffusion))
    with pytest.raises(AttributeError, match="nothing"):
        mineru_diffusion.nothing  # noqa: B018


def test_the_report_is_one_json_object_a_line(tmp_path: Path) -> None:
    data = tmp_path / "in"
    data.mkdir()
    good = save_pdf(data / "a.pdf", [PAGE] * 2)
    (data / "b.pdf").write_bytes(good.read_bytes()[:500])
    (data / "notes.txt").write_text("words")
    report = tmp_path / "deep" / "report.jsonl"
    code, _, stderr = call("parse", data, "-o", tmp_path / "out", "--report", report)
    lines = [json.loads(line) for line in report.read_text().splitlines()]
    assert [line["type"] for line in lines] == ["passed_over", "file", "file", "summary"]
    assert lines[0]["path"].endswith("notes.txt")
    assert (lines[1]["status"], lines[1]["pages"], lines[1]["counters"]["crops"]) == ("ok", 2, 4)
    assert lines[2]["error"]["kind"] == "SourceError"
    assert "b.pdf" in lines[2]["error"]["message"]
    assert (lines[3]["ok"], lines[3]["failed"], lines[3]["exit_code"]) == (1, 1, code) == (1, 1, 3)
    assert "1 file(s) passed over" in stderr
    assert call("parse", data, "-o", tmp_path / "out", "--report", data)[0] == 2


def test_exit_codes(tmp_path: Path) -> None:
    sys.path.insert(0, str(Path(__file__).parent / "document"))
    from conftest import write_pdf

    locked = write_pdf(tmp_path / "locked.pdf", user="secret")
    good = save_pdf(tmp_path / "good.pdf", [PAGE])
    out = tmp_path / "out"
    assert call("parse", locked, "-o", out)[0] == 4
    assert call("parse", locked, good, "-o", out)[0] == 4
    assert call("parse", locked, "-o", out, "--password", "secret")[0] == 0
    assert call("parse", tmp_path / "none.pdf", "-o", out)[0] == 1
    assert call("parse", tmp_path / "none.pdf", good, "-o", out)[0] == 3
    assert call("parse", "-", "-o", out)[0] == 2
    assert call("parse", good, "-o", out, "--jobs", "0")[0] == 2


def test_a_page_without_an_answer_is_told_by_the_exit_code(tmp_path: Path, engine: FakeEngine) -> None:
    engine._answer = lambda request: Result("", finish_reason="error", error="too late")
    path = save_pdf(tmp_path / "a.pdf", [PAGE])
    assert call("parse", path, "-o", tmp_path / "out")[0] == 3
    engine._answer = lambda request: "words"
    assert call("parse", path, "-o", tmp_path / "out")[0] == 0


def test_ctrl_c_once_finishes_what_is_in_flight_and_twice_stops(tmp_path: Path, engine: FakeEngine) -> None:
    path = save_pdf(tmp_path / "a.pdf", [PAGE] * 12)
    asked = 0

    def press(request: object) -> str:
        nonlocal asked
        asked += 1
        if asked == 1:
            signal.raise_signal(signal.SIGINT)
        return "words"

    engine._answer = press
    before = signal.getsignal(signal.SIGINT)
    code, _, stderr = call("parse", path, "-o", tmp_path / "out")
    assert code == 130
    assert "the same command goes on from here" in stderr
    assert signal.getsignal(signal.SIGINT) is before
    first = asked
    assert 2 <= first < 24
    assert not (tmp_path / "out" / "a" / "a.json").exists()

    def press_twice(request: object) -> str:
        nonlocal asked
        asked += 1
        signal.raise_signal(signal.SIGINT)
        return "words"

    engine._answer = press_twice
    code, _, stderr = call("parse", path, "-o", tmp_path / "out")
    assert (code, asked) == (130, first + 2)
    assert not (tmp_path / "out" / "a" / "a.json").exists()
    engine._answer = lambda request: "words"
    assert call("parse", path, "-o", tmp_path / "out")[0] == 0
    document = json.loads((tmp_path / "out" / "a" / "a.json").read_text())
    assert len(document["pages"]) == 12


def test_the_last_thing_that_the_bars_show_is_that_all_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    import rich.console

    from mineru_diffusion.cli.bars import progress_bars
    from mineru_diffusion.document.types import Page

    screen = io.StringIO()
    terminal = rich.console.Console(file=screen, force_terminal=True, width=100)
    monkeypatch.setattr(rich.console, "Console", lambda **options: terminal)
    with progress_bars(shown=True, files=1) as bars:
        assert bars is not None
        bars.document_opened(Path("a.pdf"), 1)
        bars.crops(3, 3)
        bars.page_finished(Path("a.pdf"), Page(0, 1, 1))
        bars.file_done()
    text = screen.getvalue()
    assert text.rindex("1/1") > text.rindex("0/1") if "0/1" in text else "1/1" in text
    assert "3/3" in text
    with progress_bars(shown=False, files=1) as bars:
        assert bars is None
