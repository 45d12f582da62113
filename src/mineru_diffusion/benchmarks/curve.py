"""`bench curve`: accuracy against tokens per pass for all unmasking policies on the same held-out lines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mineru_diffusion.benchmarks.common import Progress, save, table
from mineru_diffusion.engine.local import load_engine
from mineru_diffusion.errors import UsageError
from mineru_diffusion.evaluation.curve import DEFAULT_SWEEPS, speed_curve


def bench_curve(
    model: Path | None = None,
    *,
    lines: int = 200,
    seed: int = 0,
    policies: Sequence[str] | None = None,
    plot: Path | None = None,
    device: str = "auto",
    out: Path | None = None,
    progress: Progress | None = None,
) -> str:
    """Run it.

    Args:
        model: a checkpoint that reads lines; None: the packaged one.
        lines: read with every setting.
        seed: of the lines.
        policies: some of `DEFAULT_SWEEPS`; None: all.
        plot: PNG file to draw.
        device: where to run.
        out: JSON file to write.
        progress: called with how many settings are done and how many there are.

    Raises:
        UsageError: an unknown policy.
        MissingExtra: a plot is wanted and matplotlib is missing.
    """
    unknown = sorted(set(policies or ()) - set(DEFAULT_SWEEPS))
    if unknown:
        raise UsageError(f"unknown policy {', '.join(unknown)}; use some of {', '.join(DEFAULT_SWEEPS)}")
    if plot is not None:  # a missing package should show before the long measurement
        from mineru_diffusion.evaluation.plots import plot_speed_curve
    sweeps = {name: values for name, values in DEFAULT_SWEEPS.items() if policies is None or name in policies}
    with load_engine(model, device=device) as engine:
        curve = speed_curve(engine, sweeps, lines=lines, seed=seed, progress=progress)
    points = [
        {
            "policy": point.policy,
            "value": point.value,
            "CER %": 100 * point.cer,
            "tokens/pass": point.tokens_per_pass,
            "tokens/step": point.tokens_per_step,
        }
        for point in (curve.baseline, *curve.points)
    ]
    save(out, "curve", points, lines=lines, seed=seed, speeds=curve.speeds())
    if plot is not None:
        plot_speed_curve(curve, plot)
    return (
        table(points)
        + "\n\nfastest setting that keeps a share of the accuracy of one token a step:\n"
        + table(curve.speeds())
    )
