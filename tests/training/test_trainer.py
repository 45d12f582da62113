"""The loop on a very small network: it learns, resumes to the same losses, and exports a checkpoint that reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mineru_diffusion.engine import LocalEngine, Request
from mineru_diffusion.errors import UsageError
from mineru_diffusion.model.checkpoint import load_checkpoint
from mineru_diffusion.training.config import load_config
from mineru_diffusion.training.trainer import train

SMALL = """
name: small
stage: {stage}
device: cpu
max_steps: {steps}
batch_positions: 600
log_every: 2
lines: {{min_chars: 1, max_chars: 6, chunk: 24, workers: 0}}
network: {{vision_width: 48, vision_depth: 1, vision_heads: 2, width: 64, layers: 2, heads: 2, kv_heads: 1,
           head_dim: 16, intermediate: 64}}
helpers: {{alignment_layers: [1]}}
diffusion: {{block_length: 8}}
optimizer: {{warmup_steps: 1}}
"""


def config(tmp_path: Path, *, stage: str = "joint", steps: int = 6) -> Path:
    path = tmp_path / f"{stage}-{steps}.yaml"
    path.write_text(SMALL.format(stage=stage, steps=steps))
    return path


def losses(folder: Path) -> list[dict[str, float]]:
    records = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [{k: v for k, v in r.items() if k not in ("minutes", "lines_per_second")} for r in records]


def test_resumes_to_the_same_losses(tmp_path: Path) -> None:
    train(config(tmp_path, steps=6), tmp_path / "whole", quiet=True)
    train(config(tmp_path, steps=4), tmp_path / "parts", quiet=True)
    train(config(tmp_path, steps=6), tmp_path / "parts", resume=True, quiet=True)
    assert losses(tmp_path / "parts") == losses(tmp_path / "whole")
    assert len(losses(tmp_path / "whole")) == 3


def test_exports_a_checkpoint_that_the_engine_reads(tmp_path: Path) -> None:
    train(config(tmp_path, stage="vision", steps=2), tmp_path / "vision", quiet=True)
    train(
        config(tmp_path, steps=2),
        tmp_path / "joint",
        overrides=[f"init_from={tmp_path / 'vision'}"],
        quiet=True,
    )
    checkpoint = load_checkpoint(tmp_path / "joint" / "checkpoint")
    assert checkpoint.profile.tasks == ("text",)
    assert checkpoint.profile.text_unit == "line"
    with LocalEngine(checkpoint) as engine:
        from PIL import Image

        (result,) = engine.generate([Request(Image.new("RGB", (96, 32), "white"))])
    assert result.finish_reason != "error"


def test_a_run_is_not_overwritten(tmp_path: Path) -> None:
    train(config(tmp_path, stage="vision", steps=2), tmp_path / "run", quiet=True)
    with pytest.raises(UsageError, match="--resume"):
        train(config(tmp_path, stage="vision", steps=2), tmp_path / "run", quiet=True)
    with pytest.raises(UsageError, match="train that stage first"):
        train(
            config(tmp_path, steps=2), tmp_path / "other", overrides=[f"init_from={tmp_path / 'nothing'}"], quiet=True
        )


def test_time_limit_ends_with_a_state(tmp_path: Path) -> None:
    progress = train(config(tmp_path, stage="vision", steps=1000), tmp_path / "run", time_limit_minutes=0.0, quiet=True)
    assert progress.step == 1
    assert (tmp_path / "run" / "state.pt").is_file()


def test_configurations_are_checked(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("optimizer: {speed: 3}\n")
    with pytest.raises(UsageError, match=r"optimizer: unknown key speed; known: .*lr"):
        load_config(path)
    with pytest.raises(UsageError, match="no such file"):
        load_config(tmp_path / "nothing.yaml")
    assert load_config(config(tmp_path), ["optimizer.lr=0.5"]).optimizer.lr == 0.5


@pytest.mark.parametrize("path", sorted((Path(__file__).parents[2] / "configs").glob("*.yaml")), ids=lambda p: p.name)
def test_shipped_configurations_load(path: Path) -> None:
    load_config(path)
