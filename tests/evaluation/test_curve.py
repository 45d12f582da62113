"""The speed curve: the real engine on a random network, and the arithmetic on made-up points."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image
from tests.tiny import random_checkpoint

from mineru_diffusion.engine.local import LocalEngine
from mineru_diffusion.errors import UsageError
from mineru_diffusion.evaluation.curve import CurvePoint, SpeedCurve, params_of, speed_curve

pytest.importorskip("wordfreq")


def point(policy: str, value: float, cer: float, speed: float) -> CurvePoint:
    return CurvePoint(policy, value, cer, speed, speed, 0.0)


CURVE = SpeedCurve(
    lines=10,
    seed=0,
    baseline=point("threshold", 1.0, 0.10, 0.8),
    points=(
        point("threshold", 0.9, 0.1008, 1.6),  # accuracy 0.8992, kept 0.99911
        point("threshold", 0.5, 0.2, 4.0),
        point("factor", 1.0, 0.108, 2.4),  # accuracy 0.892, kept 0.9911
        point("factor", 2.0, 0.11, 3.0),  # accuracy 0.89, kept 0.9889
    ),
)


def test_the_fastest_setting_that_keeps_the_accuracy() -> None:
    best = CURVE.best(0.999)
    assert best is not None
    assert (best.policy, best.value) == ("threshold", 0.9)
    best = CURVE.best(0.99)
    assert best is not None
    assert (best.policy, best.value) == ("factor", 1.0)
    assert CURVE.best(0.999, "factor") is None


def test_speeds_are_times_the_baseline() -> None:
    rows = {(row["kept"], row["policy"]): row for row in CURVE.speeds()}
    assert rows[0.999, "threshold"]["times"] == pytest.approx(2.0)
    assert rows[0.99, "factor"]["times"] == pytest.approx(3.0)
    assert rows[0.999, "factor"]["times"] is None
    assert CURVE.to_plain()["baseline"]["cer"] == 0.10


def test_parameters_by_policy() -> None:
    assert params_of("fixed", 4).steps == 4
    assert params_of("entropy", 0.5).gamma == 0.5
    assert params_of("threshold", 0.7).threshold == 0.7
    with pytest.raises(UsageError, match="unknown unmasking policy 'best'"):
        params_of("best", 1)


def test_a_sweep_with_a_random_network() -> None:
    """The baseline decides one token a step whatever the network; a threshold of 0.01 decides more."""
    sweeps = {"threshold": (0.01,), "fixed": (2.0, 8.0)}
    checkpoint = random_checkpoint()
    short = replace(checkpoint.profile, max_tokens=16, line_max_aspect=100.0)
    with LocalEngine(replace(checkpoint, profile=short)) as engine:
        told: list[tuple[int, int]] = []
        curve = speed_curve(engine, sweeps, lines=2, progress=lambda done, total: told.append((done, total)))
    assert told == [(done, 4) for done in range(5)]
    assert curve.baseline.tokens_per_step == 1
    fast, two, eight = curve.points
    assert fast.tokens_per_step > 2
    assert two.tokens_per_step > 2
    # Eight steps for blocks of eight tokens are one token a step too.
    assert eight.tokens_per_step == 1
    assert eight.cer == curve.baseline.cer


def test_the_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from mineru_diffusion.evaluation.plots import plot_speed_curve

    plot_speed_curve(CURVE, tmp_path / "deep" / "curve.png")
    with Image.open(tmp_path / "deep" / "curve.png") as image:
        assert image.format == "PNG"
        assert image.width > 800
