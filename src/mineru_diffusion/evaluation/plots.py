"""Pictures of what was measured. In: a speed curve. Out: a PNG file."""

from __future__ import annotations

from pathlib import Path

from mineru_diffusion.errors import MissingExtra
from mineru_diffusion.evaluation.curve import KEPT, SpeedCurve

try:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
except ImportError as error:
    raise MissingExtra("plots", "eval") from error


def plot_speed_curve(curve: SpeedCurve, path: Path) -> None:
    """Character accuracy over tokens per pass, a line for every policy, the kept accuracies as dashed lines.

    Raises:
        OSError: the file cannot be written.
    """
    figure = Figure(figsize=(7.2, 4.4), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    base = curve.baseline
    lowest = base.accuracy
    for policy in dict.fromkeys(p.policy for p in curve.points):
        points = sorted((p for p in curve.points if p.policy == policy), key=lambda p: p.tokens_per_pass)
        axes.plot(
            [p.tokens_per_pass for p in points], [100 * p.accuracy for p in points], "o-", markersize=4, label=policy
        )
        for point in points:
            label = f"{point.value:g}"
            place = (point.tokens_per_pass, 100 * point.accuracy)
            axes.annotate(label, place, (0, 5), textcoords="offset points", fontsize=6, ha="center", color="0.35")
        lowest = min(lowest, *(p.accuracy for p in points))
    axes.plot([base.tokens_per_pass], [100 * base.accuracy], "ks", markersize=6, label="one token a step")
    for kept in KEPT:
        level = 100 * kept * base.accuracy
        axes.axhline(level, color="0.6", linewidth=0.8, linestyle="--")
        best = curve.best(kept)
        said = "not reached" if best is None else f"{best.tokens_per_pass / base.tokens_per_pass:.1f} times the speed"
        text = f"{100 * kept:g} % kept: {said}"
        # Where the two levels lie close together, their labels stand above and below them.
        above = kept == max(KEPT)
        axes.annotate(
            text,
            (1, level),
            (-4, 2 if above else -2),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            ha="right",
            va="bottom" if above else "top",
            fontsize=7,
            color="0.3",
        )
    margin = max(0.2, 8 * (base.accuracy - lowest), 0.5 * 100 * (1 - min(KEPT)))
    axes.set_ylim(100 * lowest - margin, 100 * base.accuracy + 2 * margin)
    axes.set_xlabel("tokens per forward pass")
    axes.set_ylabel("characters read correctly (1 - CER), %")
    axes.set_title(f"{curve.lines} held-out lines", fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, loc="lower left")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
