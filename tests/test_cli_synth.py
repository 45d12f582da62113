"""`synth` on the command line: shards, preview, statistics, going on, and exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from mineru_diffusion.cli import app
from mineru_diffusion.cli.synth import parse_weights
from mineru_diffusion.errors import UsageError
from mineru_diffusion.synthesis.fonts import FALLBACK
from mineru_diffusion.synthesis.shards import read_shards

for needed in ("pyarrow", "typst", "wordfreq"):
    pytest.importorskip(needed)


@pytest.fixture(autouse=True)
def no_fonts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking for the fonts of the machine would take longest."""
    monkeypatch.setattr("mineru_diffusion.synthesis.preview.truth_font", lambda: FALLBACK)


def call(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["synth", *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def test_shards_preview_and_statistics(tmp_path: Path) -> None:
    out, preview = tmp_path / "data", tmp_path / "new" / "sheet.webp"
    options = ("-n", 5, "--tasks", "formula", "--seed", 7, "--shard-size", 3)
    code, stdout, stderr = call(out, *options, "--preview", preview, "--stats")
    assert code == 0
    assert "5 samples made: 2 file(s)" in stderr
    assert "formula" in stdout
    samples = list(read_shards(sorted(out.glob("*.parquet"))))
    assert [sample.task for sample in samples] == ["formula"] * 5
    assert Image.open(preview).width > 600
    assert json.loads((out / "statistics.json").read_text(encoding="utf-8"))["tasks"]["formula"]["samples"] == 5

    code, _, stderr = call(out, *options)
    assert code == 0
    assert "0 samples made, 5 were there" in stderr
    again = tmp_path / "again"
    assert call(again, *options, "-q") == (0, "", "")
    for once, twice in zip(samples, read_shards(sorted(again.glob("*.parquet"))), strict=True):
        assert (once.target, once.source) == (twice.target, twice.source)
        np.testing.assert_array_equal(once.image, twice.image)


def test_other_options_in_the_same_folder(tmp_path: Path) -> None:
    assert call(tmp_path, "-n", 1, "--tasks", "formula", "-q")[0] == 0
    code, _, stderr = call(tmp_path, "-n", 1, "--tasks", "formula", "--seed", 1)
    assert code == 2
    assert "another seed" in stderr


@pytest.mark.parametrize("tasks", ["poem", "formula=0", "formula=x", "formula,formula", "", "formula=inf", "=2"])
def test_bad_tasks(tmp_path: Path, tasks: str) -> None:
    code, _, stderr = call(tmp_path / "data", "--tasks", tasks)
    assert code == 2
    assert stderr.startswith("error: ")
    assert not list(tmp_path.glob("data/*.parquet"))


def test_a_preview_is_a_picture(tmp_path: Path) -> None:
    code, _, stderr = call(tmp_path / "data", "--preview", tmp_path / "sheet.txt")
    assert code == 2
    assert ".webp" in stderr
    assert not (tmp_path / "data").exists()


def test_weights() -> None:
    assert parse_weights("text=4, table , formula=0.5") == {"text": 4.0, "table": 1.0, "formula": 0.5}
    with pytest.raises(UsageError, match="--tasks"):
        parse_weights("text=-1")


def test_help_loads_little() -> None:
    code = (
        "import sys; from mineru_diffusion.cli import main\n"
        "try: main(['synth', '--help'])\nexcept SystemExit: pass\n"
        "heavy = {'torch', 'numpy', 'typst', 'pyarrow'} & set(sys.modules); assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "--shard-size" in done.stdout
