"""Configurations: files that say what is wrong, and the shipped ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mineru_diffusion.errors import UsageError
from mineru_diffusion.training.config_file import load_config
from mineru_diffusion.training.limits import seconds_of
from tests.training.small import config


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
        ("data: {mixture: {lines: 0}}", "data.mixture.lines: a share must be above 0"),
        ("data: {mixture: {lines: many}}", "data.mixture.lines: expected a number"),
        ("data: {mixture: lines}", "expected names with numbers"),
        ("diffusion: {weighting: inverse_t}", "inverse_t weighting needs uniform masks"),
        ("diffusion: {complementary: true, draws: 1}", "make diffusion.draws even"),
        ("accumulate: 0", "must be at least 1"),
        ("lora: {rank: 4}", "set checkpoint"),
        ("optimizer: {betas: [0.9, high]}", "optimizer.betas[1]: expected a number"),
        ("optimizer: {betas: [0.9]}", "optimizer.betas: expected 2 values"),
        ("optimizer: {ema: 1}", "optimizer.ema: must be at least 0 and below 1"),
        ("lines: {workers: -1}", "lines.workers: must be at least 0"),
        ("evaluation: {samples: 0}", "evaluation.samples: must be at least 1"),
        ("diffusion: {full_share: 0.8}", "parts of one whole"),
        ("tasks: [tables]", "tasks: name some of text, table, formula, layout"),
        ("device: gpu", "device: 'gpu' is not one of auto, cpu, cuda, mps"),
        ("network: {width: 0}", "network.width: must be above 0"),
        ("network: {heads: 5}", "network.heads: 5 must be a multiple of kv_heads 2"),
        ("network: {vision_heads: 5}", "network.vision_width: 144 must be a multiple of vision_heads 5"),
        ("helpers: {alignment_layers: [9]}", "helpers.alignment_layers: there is no layer 9, only 0 to 3"),
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
    with pytest.raises(UsageError, match="cannot be read"):
        load_config(tmp_path)
    with pytest.raises(UsageError, match=r"--set lines=.*not valid YAML"):
        load_config(config(tmp_path), ["lines=["])
    assert load_config(config(tmp_path), ["optimizer.lr=0.5"]).optimizer.lr == 0.5


@pytest.mark.parametrize("path", sorted((Path(__file__).parents[2] / "configs").glob("*.yaml")), ids=lambda p: p.name)
def test_shipped_configurations_load(path: Path) -> None:
    load_config(path)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("10m", 600), ("2h", 7200), ("1h30m", 5400), ("0.5m", 30)]
)
def test_durations(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "10x", "m", "-5"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(UsageError, match="no duration"):
        seconds_of(text)
