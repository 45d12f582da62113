"""Learning curves: which records count, how runs are chained, and a picture that has something on it."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def plots() -> ModuleType:
    path = Path(__file__).parents[2] / "scripts" / "plot_runs.py"
    spec = importlib.util.spec_from_file_location("plot_runs", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["plot_runs"] = module
    spec.loader.exec_module(module)
    return module


def write_run(folder: Path, steps: int = 20, *, evaluated: bool = False) -> Path:
    folder.mkdir()
    records = [
        {"step": s, "samples": 10 * s, "minutes": s / 2, "loss": 3 / s, "accuracy": 1 - 1 / s}
        for s in range(1, steps + 1)
    ]
    (folder / "log.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    if evaluated:
        rows = [{"step": s, "text": 1 - 2 / s, "score": 1 - 2 / s} for s in (5, 10)]
        (folder / "evaluation.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    return folder


def test_steps_that_were_done_twice_count_once(tmp_path: Path, plots: ModuleType) -> None:
    log = tmp_path / "log.jsonl"
    records = [{"step": s, "loss": loss} for s, loss in ((1, 5.0), (2, 4.0), (3, 3.0), (2, 4.5), (4, 2.0))]
    log.write_text("".join(json.dumps(r) + "\n" for r in records) + '{"step": 5, "lo')
    assert [(r["step"], r["loss"]) for r in plots.read_records(log)] == [(1, 5.0), (2, 4.5), (4, 2.0)]


def test_evaluations_stand_where_the_log_was(tmp_path: Path, plots: ModuleType) -> None:
    run = plots.read_run(f"mine={write_run(tmp_path / 'a', evaluated=True)}")
    assert run.name == "mine"
    assert [(e["samples"], e["minutes"]) for e in run.evaluation] == [(50, 2.5), (100, 5.0)]


def test_chained_runs_follow_each_other(tmp_path: Path, plots: ModuleType) -> None:
    runs = [plots.read_run(str(write_run(tmp_path / name, steps))) for name, steps in (("a", 20), ("b", 5), ("c", 5))]
    moved = plots.chained(runs)
    assert [run.log[0]["samples"] for run in moved] == [10, 210, 260]
    assert moved[2].log[-1]["step"] == 30


def test_a_moving_average_keeps_what_is_level(plots: ModuleType) -> None:
    assert plots.smoothed(np.full(10, 2.0), 5) == pytest.approx(np.full(10, 2.0))
    assert plots.smoothed(np.array([0.0, 3.0, 0.0]), 3) == pytest.approx([1.5, 1.0, 1.5])


@pytest.mark.parametrize("options", [[], ["--chain"], ["--x", "minutes"]])
def test_draws_the_panels_that_have_figures(
    tmp_path: Path, plots: ModuleType, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    folders = [str(write_run(tmp_path / "a", evaluated=True)), str(write_run(tmp_path / "b"))]
    picture = tmp_path / "new" / "curves.png"
    plots.main([*folders, "-o", str(picture), *options])
    said = capsys.readouterr().out
    assert "loss, answer tokens predicted rightly, held-out similarity" in said
    assert "helper" not in said
    assert np.asarray(Image.open(picture).convert("L")).std() > 5


def test_says_what_is_missing(tmp_path: Path, plots: ModuleType) -> None:
    with pytest.raises(SystemExit, match="no curves"):
        plots.main([str(tmp_path)])
