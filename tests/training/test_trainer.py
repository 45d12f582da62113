"""The loop on a very small network: it learns, resumes to the same losses, and exports a checkpoint that reads."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest
import torch

from mineru_diffusion.engine import LocalEngine, Request
from mineru_diffusion.errors import UsageError
from mineru_diffusion.model.checkpoint import load_checkpoint
from mineru_diffusion.training.config import load_config
from mineru_diffusion.training.objective import Inputs
from mineru_diffusion.training.trainer import Trainer, train

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
    # Stopped between two log lines, so that the figures of half a line must be kept too.
    train(config(tmp_path, steps=3), tmp_path / "parts", quiet=True)
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


def test_an_interrupted_run_saves_whole_steps_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = Trainer._step

    def interrupted(self: Trainer, inputs: Inputs) -> dict[str, float]:
        if self.progress.step == 2:
            signal.raise_signal(signal.SIGTERM)
        return step(self, inputs)

    monkeypatch.setattr(Trainer, "_step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train(config(tmp_path, steps=6), tmp_path / "parts", quiet=True)
    monkeypatch.undo()
    train(config(tmp_path, steps=6), tmp_path / "parts", resume=True, quiet=True)
    train(config(tmp_path, steps=6), tmp_path / "whole", quiet=True)
    assert losses(tmp_path / "parts") == losses(tmp_path / "whole")


def test_a_batch_without_a_finite_gradient_changes_nothing(tmp_path: Path) -> None:
    trainer = Trainer(load_config(config(tmp_path)), tmp_path / "run", quiet=True)
    _, _, batch = next(trainer._batches())
    inputs = trainer.inputs(batch)
    inputs.pixels.fill_(float("nan"))
    before = {name: p.clone() for name, p in trainer.module.named_parameters()}
    assert trainer._step(inputs) == {"skipped": 1.0}
    assert all(torch.equal(p, before[name]) for name, p in trainer.module.named_parameters())


def test_starting_from_an_exported_checkpoint(tmp_path: Path) -> None:
    train(config(tmp_path, steps=2), tmp_path / "first", quiet=True)
    trainer = Trainer(
        load_config(config(tmp_path), [f"init_from={tmp_path / 'first' / 'checkpoint'}"]),
        tmp_path / "second",
        quiet=True,
    )
    exported = load_checkpoint(tmp_path / "first" / "checkpoint", dtype=torch.float32).model.state_dict()
    for name, tensor in trainer.module.network.state_dict().items():
        assert torch.equal(tensor, exported[name])
    with pytest.raises(UsageError, match="another network"):
        Trainer(
            load_config(config(tmp_path), [f"init_from={tmp_path / 'first'}", "network.width=32"]),
            tmp_path / "third",
            quiet=True,
        )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("stage: visoin", "stage: 'visoin' is not one of vision, joint"),
        ("lines:", "lines: expected a section"),
        ("optimizer: {lr: fast}", "optimizer.lr: expected a number"),
        ("max_steps: many", "max_steps: expected int"),
        ("freeze_vision: 1", "freeze_vision: expected bool"),
        ("helpers: {alignment_layers: 1}", "alignment_layers: expected a list"),
        ("[1, 2]", "expected sections"),
        ("a: [", "not valid YAML"),
    ],
)
def test_wrong_values_name_their_place(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=re.escape(message)):
        load_config(path)


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
