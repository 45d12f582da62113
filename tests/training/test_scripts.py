"""The scripts that go from nothing to a checkpoint."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SMALLEST = (
    "max_steps=1",
    "grow_from=0",
    "batch_positions=400",
    "lines={min_chars: 1, max_chars: 5, chunk: 16, workers: 0, max_aspect: 7}",
    "network={vision_width: 48, vision_depth: 1, vision_heads: 2, width: 64, layers: 3, heads: 2, kv_heads: 1, "
    "head_dim: 16, intermediate: 64}",
)


def start_script(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`runs/train_tiny.sh`, run to its end."""
    return subprocess.run(
        ["bash", str(ROOT / "runs" / "train_tiny.sh"), *arguments],
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )


def run_script(*arguments: str) -> str:
    """Standard output of `runs/train_tiny.sh`, which must end well."""
    done = start_script(*arguments)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_the_time_limit_is_that_of_all_stages(tmp_path: Path) -> None:
    assert "time is up" in run_script(str(tmp_path), "--time-limit", "2s")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("limit", ["soon", "1.5h", "10x"])
def test_what_is_no_time_limit(tmp_path: Path, limit: str) -> None:
    done = start_script(str(tmp_path), "--time-limit", limit)
    assert done.returncode == 2
    assert f"--time-limit {limit}: write seconds, or 10m, 2h, 1h30m" in done.stderr
    assert not any(tmp_path.iterdir())


@pytest.mark.slow
def test_all_stages_and_the_twin_from_nothing(tmp_path: Path) -> None:
    settings = [part for value in SMALLEST for part in ("--set", value)]
    said = run_script(str(tmp_path), "--twin", *settings)
    for stage in ("vision", "decoder", "tiny", "decoder_ar", "tiny_ar"):
        assert (tmp_path / stage / "checkpoint" / "model.safetensors").is_file()
        assert f"{stage}/checkpoint" in said
