"""What the trainer offers besides training: the twin, accumulation, precision, evaluation, logs, old states."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import torch
from rich.console import Console

from mineru_diffusion.model.checkpoint import load_checkpoint
from mineru_diffusion.training.config_file import load_config
from mineru_diffusion.training.logs import RunLog
from mineru_diffusion.training.state import STATE, read_state
from mineru_diffusion.training.trainer import Trainer, train
from mineru_diffusion.training.watch import averaged
from tests.training.small import config, losses


def test_the_twin_is_exported_as_what_it_is(tmp_path: Path) -> None:
    train(config(tmp_path, steps=2), tmp_path / "ar", overrides=["objective=autoregressive"], quiet=True)
    (record,) = losses(tmp_path / "ar")
    assert {"loss", "alignment", "place", "slots"} <= set(record)
    profile = load_checkpoint(tmp_path / "ar" / "checkpoint").profile
    assert (profile.objective, profile.block_length) == ("autoregressive", 1)


def test_accumulation_resumes_to_the_same_losses(tmp_path: Path) -> None:
    """However many processes render the lines."""
    overrides = ["accumulate=3"]
    train(config(tmp_path, steps=4), tmp_path / "whole", overrides=overrides, quiet=True)
    train(config(tmp_path, steps=3), tmp_path / "parts", overrides=[*overrides, "lines.workers=2"], quiet=True)
    train(config(tmp_path, steps=4), tmp_path / "parts", overrides=overrides, resume=True, quiet=True)
    assert losses(tmp_path / "parts") == losses(tmp_path / "whole")


def test_accumulated_gradients_are_the_mean_of_the_batches(tmp_path: Path) -> None:
    trainer = Trainer(load_config(config(tmp_path), ["accumulate=2"]), tmp_path / "run", quiet=True)
    batches = trainer._take()
    seen: list[dict[str, torch.Tensor]] = []
    for optimizer in trainer.optimizers:
        optimizer.step = lambda: None  # type: ignore[method-assign]
    trainer.accelerator.clip_grad_norm_ = lambda *_: (  # type: ignore[method-assign]
        seen.append({n: p.grad.clone() for n, p in trainer.module.named_parameters() if p.grad is not None}),
        torch.ones(()),
    )[1]
    trainer._step(batches)
    for number, drawn in batches:
        trainer._step([(number, drawn)])
    together, first, second = seen
    for name, gradient in together.items():
        torch.testing.assert_close(gradient, (first[name] + second[name]) / 2, atol=1e-6, rtol=1e-4)


def test_checkpointing_and_bfloat16_change_little(tmp_path: Path) -> None:
    plain, thrifty, rough = (tmp_path / name for name in ("plain", "thrifty", "rough"))
    train(config(tmp_path, steps=2), plain, quiet=True)
    train(config(tmp_path, steps=2), thrifty, overrides=["checkpointing=true"], quiet=True)
    train(config(tmp_path, steps=2), rough, overrides=["precision=bfloat16"], quiet=True)
    (expected,), (same,), (near,) = losses(plain), losses(thrifty), losses(rough)
    assert same == pytest.approx(expected, rel=1e-3)
    assert near != expected
    assert near["loss"] == pytest.approx(expected["loss"], rel=0.02)


def test_evaluates_shows_and_keeps_the_best(tmp_path: Path) -> None:
    out = tmp_path / "run"
    progress = train(
        config(tmp_path, steps=3),
        out,
        overrides=["evaluation={every: 2, samples: 3, show_every: 3, show: 2}", "tensorboard=true"],
        quiet=True,
    )
    (figures,) = [json.loads(line) for line in (out / "evaluation.jsonl").read_text().splitlines()]
    assert figures["step"] == 2
    assert 0.0 <= figures["score"] <= 1.0
    assert progress.best == pytest.approx(figures["score"], abs=1e-4)
    assert read_state(out / STATE)["progress"]["best"] == progress.best
    shown = [json.loads(line) for line in (out / "transcriptions.jsonl").read_text().splitlines()]
    assert [record["step"] for record in shown] == [3, 3]
    assert all(record["truth"] for record in shown)
    best = load_checkpoint(out / "best").model.state_dict()
    last = load_checkpoint(out / "checkpoint").model.state_dict()
    assert any(not torch.equal(best[name], last[name]) for name in best)
    assert any((out / "tensorboard").iterdir())


def test_evaluation_sees_the_average_and_gives_the_weights_back(tmp_path: Path) -> None:
    trainer = Trainer(load_config(config(tmp_path)), tmp_path / "run", quiet=True)
    trainer._step(trainer._take())
    weights = {name: p.clone() for name, p in trainer.module.named_parameters()}
    shadow = {name: t.clone() for name, t in trainer.average.shadow.items()}
    with averaged(trainer.module, trainer.average):
        assert not trainer.module.training
        assert all(torch.equal(p, shadow[name]) for name, p in trainer.module.named_parameters())
    assert trainer.module.training
    assert all(torch.equal(p, weights[name]) for name, p in trainer.module.named_parameters())
    assert all(torch.equal(t, shadow[name]) for name, t in trainer.average.shadow.items())


def test_states_of_one_data_source_still_resume(tmp_path: Path) -> None:
    """Earlier states kept one position and, in the average, every parameter."""
    train(config(tmp_path, steps=4), tmp_path / "whole", quiet=True)
    train(config(tmp_path, steps=2), tmp_path / "old", quiet=True)
    state = read_state(tmp_path / "old" / STATE)
    progress = state["progress"]
    progress["chunk"], progress["batch"] = progress.pop("positions")["lines"]
    for name in ("batches", "best"):
        del progress[name]
    for name in ("data", "lora", "evaluation", "objective"):
        del state["config"][name]
    torch.save(state, tmp_path / "old" / STATE)
    train(config(tmp_path, steps=4), tmp_path / "old", resume=True, quiet=True)
    assert losses(tmp_path / "old") == losses(tmp_path / "whole")


def test_without_an_average_the_weights_are_exported(tmp_path: Path) -> None:
    train(
        config(tmp_path, steps=2), tmp_path / "run", overrides=["optimizer.ema=0", "export_dtype=float32"], quiet=True
    )
    state = read_state(tmp_path / "run" / STATE)
    exported = load_checkpoint(tmp_path / "run" / "checkpoint").model.state_dict()
    assert not state["average"]["shadow"]
    assert all(torch.equal(tensor, state["module"][f"network.{name}"]) for name, tensor in exported.items())


def test_the_live_line_says_where_the_run_is(tmp_path: Path) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100)
    with RunLog(tmp_path, console, tensorboard=False, max_steps=2000) as log:
        log.step(1000, 0.5, 90.0)
        log.step(1010, 0.5, 80.0)
        log.record(1010, {"step": 1010, "loss": 0.5})
    written = screen.getvalue()
    assert "step 1,010 of 2,000" in written
    assert "loss 0.5000" in written
    assert " left" in written
    assert json.loads((tmp_path / "log.jsonl").read_text()) == {"step": 1010, "loss": 0.5}
