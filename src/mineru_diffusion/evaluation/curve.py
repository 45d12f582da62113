"""How fast a checkpoint may decode before it costs accuracy. In: an engine and held-out lines. Out: a curve.

Accuracy is 1 - character error rate. Speed is generated tokens over forward passes, and the baseline is the same
network deciding one token a step (confidence threshold 1, which no probability exceeds). What counts is the fastest
setting that keeps 99.9 % or 99 % of the baseline's accuracy (MinerU-Diffusion, arXiv 2603.22458, reports 2.1 and 3.0
times the baseline's speed at these).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from PIL import Image

from mineru_diffusion.engine.local import LocalEngine
from mineru_diffusion.engine.types import DecodingParams
from mineru_diffusion.errors import EngineError, UsageError
from mineru_diffusion.evaluation.lines import held_out_lines
from mineru_diffusion.evaluation.metrics import character_error_rate
from mineru_diffusion.evaluation.reading import read_images

KEPT = (0.999, 0.99)
"""Shares of the baseline's accuracy at which speeds are reported."""

PARAMETERS = {
    "threshold": "threshold",
    "factor": "factor",
    "prefix": "joint",
    "entropy": "gamma",
    "fixed": "steps",
}
"""The parameter that each policy is swept over."""

DEFAULT_SWEEPS: dict[str, tuple[float, ...]] = {
    "threshold": (0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995),
    "factor": (0.05, 0.1, 0.2, 0.5, 1.0, 2.0),
    "prefix": (0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
    "entropy": (0.01, 0.03, 0.1, 0.3, 1.0, 3.0),
    "fixed": (4, 8, 16),
}


@dataclass(frozen=True)
class CurvePoint:
    """One setting.

    Attributes:
        policy: unmasking policy.
        value: of the policy's own parameter (`PARAMETERS`).
        cer: character error rate over all lines.
        tokens_per_pass: generated tokens over forward passes (each line's own, prompt included).
        tokens_per_step: generated tokens over denoising steps that decided one of them.
        seconds: wall time, for orientation only.
    """

    policy: str
    value: float
    cer: float
    tokens_per_pass: float
    tokens_per_step: float
    seconds: float

    @property
    def accuracy(self) -> float:
        """1 - CER, at least 0."""
        return max(0.0, 1.0 - self.cer)


@dataclass(frozen=True)
class SpeedCurve:
    """All settings of a sweep, and the one token a step that they are compared with."""

    lines: int
    seed: int
    baseline: CurvePoint
    points: tuple[CurvePoint, ...]

    def best(self, kept: float, policy: str | None = None) -> CurvePoint | None:
        """The fastest setting that keeps this share of the baseline's accuracy, or None; of one policy or any."""
        enough = [
            p
            for p in self.points
            if p.accuracy >= kept * self.baseline.accuracy and (policy is None or p.policy == policy)
        ]
        return max(enough, key=lambda p: p.tokens_per_pass, default=None)

    def speeds(self) -> list[dict[str, Any]]:
        """For each share of `KEPT` and each policy the best setting; `times` is its speed over the baseline's. A policy
        without such a setting has None."""
        rows: list[dict[str, Any]] = []
        for kept in KEPT:
            for policy in dict.fromkeys(p.policy for p in self.points):
                point = self.best(kept, policy)
                row: dict[str, Any] = {"kept": kept, "policy": policy, "value": None, "tokens_per_pass": None}
                row |= {"times": None, "cer": None}
                if point is not None:
                    row |= {key: getattr(point, key) for key in ("value", "tokens_per_pass", "cer")}
                    row["times"] = point.tokens_per_pass / self.baseline.tokens_per_pass
                rows.append(row)
        return rows

    def to_plain(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**asdict(self), "speeds": self.speeds()}


def params_of(policy: str, value: float) -> DecodingParams:
    """Decoding parameters of one setting.

    Raises:
        UsageError: an unknown policy.
    """
    name = PARAMETERS.get(policy)
    if name is None:
        raise UsageError(f"unknown unmasking policy {policy!r}: use one of {', '.join(PARAMETERS)}")
    number: float = int(value) if name == "steps" else value
    return DecodingParams(policy=policy, **{name: number})  # type: ignore[arg-type]


def speed_curve(
    engine: LocalEngine,
    sweeps: Mapping[str, Sequence[float]] | None = None,
    *,
    lines: int = 500,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> SpeedCurve:
    """Read the same held-out lines (`held_out_lines`) with every setting.

    Args:
        engine: of the checkpoint.
        sweeps: values of the parameter by policy; None: `DEFAULT_SWEEPS`.
        lines: how many.
        seed: of the lines.
        progress: called with how many settings are done and how many there are.

    Raises:
        UsageError: an unknown policy or a value out of range.
        EngineError: the baseline decided more than one token in a step.
    """
    settings = [(policy, value) for policy, values in (sweeps or DEFAULT_SWEEPS).items() for value in values]
    for setting in settings:
        params_of(*setting)
    samples = held_out_lines(lines, seed=seed, height=engine.profile.line_height or 32)
    images = [Image.fromarray(sample.image) for sample, _ in samples]
    truths = [sample.text for sample, _ in samples]

    tell = progress or (lambda done, total: None)
    tell(0, len(settings) + 1)

    def measure(policy: str, value: float) -> CurvePoint:
        reading = read_images(engine, images, "text", params_of(policy, value), multiple=engine.image_factor)
        cer = character_error_rate(reading.texts, truths)
        return CurvePoint(policy, value, cer, reading.tokens_per_pass, reading.tokens_per_step, reading.seconds)

    baseline = measure("threshold", 1.0)
    if baseline.tokens_per_step > 1:
        raise EngineError(f"the baseline decided {baseline.tokens_per_step:.3f} tokens a step instead of one")
    points: list[CurvePoint] = []
    for setting in settings:
        tell(len(points) + 1, len(settings) + 1)
        points.append(measure(*setting))
    tell(len(settings) + 1, len(settings) + 1)
    return SpeedCurve(lines, seed, baseline, tuple(points))
