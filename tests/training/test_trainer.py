"""The loop on a very small network: it learns, resumes to the same losses, and exports a checkpoint that reads."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import torch

from mineru_diffusion.engine import LocalEngine, Request
from mineru_diffusion.errors import UsageError
from mineru_diffusion.model.checkpoint import load_checkpoint
from mineru_diffusion.training.config_file import load_config
from mineru_diffusion.training.data import LineBatch
from mineru_diffusion.training.feed import Drawn
from mineru_diffusion.training.objective import Inputs, PackedInputs
from mineru_diffusion.training.shards import PackedBatch
from mineru_diffusion.training.trainer import Trainer, train
from tests.training.small import config, losses


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

    def interrupted(self: Trainer, batches: list[tuple[int, Drawn]]) -> None:
        if self.progress.step == 2:
            signal.raise_signal(signal.SIGTERM)
        step(self, batches)

    monkeypatch.setattr(Trainer, "_step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train(config(tmp_path, steps=6), tmp_path / "parts", quiet=True)
    monkeypatch.undo()
    train(config(tmp_path, steps=6), tmp_path / "parts", resume=True, quiet=True)
    train(config(tmp_path, steps=6), tmp_path / "whole", quiet=True)
    assert losses(tmp_path / "parts") == losses(tmp_path / "whole")


def test_a_batch_without_a_finite_gradient_changes_nothing(tmp_path: Path) -> None:
    trainer = Trainer(load_config(config(tmp_path)), tmp_path / "run", quiet=True)
    move = trainer.mover.__call__

    def spoiled(batch: LineBatch | PackedBatch) -> Inputs | PackedInputs:
        inputs = move(batch)
        inputs.pixels.fill_(float("nan"))
        return inputs

    trainer.mover = spoiled  # type: ignore[assignment]
    before = {name: p.clone() for name, p in trainer.module.named_parameters()}
    trainer._step(trainer._take())
    assert trainer._means()["skipped"] == 1.0
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
