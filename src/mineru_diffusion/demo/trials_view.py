"""Thresholds tried so far: a table, and accuracy against speed as a small drawing.

The drawing's speed is tokens a step, which does not depend on what else the machine does; seconds are in the table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from mineru_diffusion.demo.markup import safe
from mineru_diffusion.demo.sessions import Trial

_WIDTH, _HEIGHT = 460, 230
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 18, 16, 38


def trials_html(trials: Sequence[Trial], latest: float, reference: str) -> str:
    """A table of all trials, the latest one marked, and the drawing.

    Args:
        trials: by rising threshold.
        latest: threshold of the one that was just made.
        reference: what accuracy is measured against, in words.
    """
    rows = "".join(_row(trial, trial.threshold == latest) for trial in trials)
    head = "".join(
        f'<th scope="col">{name}</th>' for name in ("threshold", "passes", "tokens/step", "tokens/s", "accuracy")
    )
    return (
        f'<div class="md-trials">{_drawing(trials, latest)}'
        f'<table class="md-table"><caption>Accuracy: characters that agree with {safe(reference)}.</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _row(trial: Trial, latest: bool) -> str:
    cells = (
        str(trial.passes),
        f"{trial.tokens_per_step:.2f}",
        f"{trial.tokens / trial.seconds if trial.seconds else 0:.0f}",
        "–" if trial.accuracy is None else f"{trial.accuracy:.1%}",
    )
    mark = ' class="md-latest" aria-current="true"' if latest else ""
    return f'<tr{mark}><th scope="row">{trial.threshold:.2f}</th>{"".join(f"<td>{c}</td>" for c in cells)}</tr>'


def _drawing(trials: Sequence[Trial], latest: float) -> str:
    points = [(t.tokens_per_step, t.accuracy, t.threshold) for t in trials if t.accuracy is not None]
    if not points:
        return ""
    # Even numbers at the ends, so that those in the middle are whole as well.
    fastest = max(2, 2 * math.ceil(max(speed for speed, _, _ in points) * 0.54))
    low = max(0.0, math.floor(min(accuracy for _, accuracy, _ in points) * 50 - 0.5) / 50)
    high = min(1.0, math.ceil(max(accuracy for _, accuracy, _ in points) * 50 + 0.5) / 50)
    wide, tall = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def place(speed: float, accuracy: float) -> tuple[float, float]:
        return _LEFT + wide * speed / fastest, _TOP + tall * (high - accuracy) / max(high - low, 1e-6)

    marks = []
    for share in (0.0, 0.5, 1.0):
        y = _TOP + tall * share
        value = high - share * (high - low)
        marks.append(f'<line class="md-grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        marks.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:.0%}</text>')
        x = _LEFT + wide * share
        marks.append(f'<text x="{x:.1f}" y="{_HEIGHT - 20}" text-anchor="middle">{fastest * share:.0f}</text>')
    ordered = sorted(points, key=lambda point: point[2])
    line = " ".join("{:.1f},{:.1f}".format(*place(speed, accuracy)) for speed, accuracy, _ in ordered)
    dots = []
    for speed, accuracy, threshold in ordered:
        x, y = place(speed, accuracy)
        kind, size = ("md-dot md-latest", 6) if threshold == latest else ("md-dot", 4)
        dots.append(f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{size}"/>')
        if threshold == latest:
            below = y < _TOP + 16
            dots.append(
                f'<text class="md-name" x="{x:.1f}" y="{y + (20 if below else -10):.1f}" '
                f'text-anchor="middle">{threshold:.2f}</text>'
            )
    said = "Accuracy against tokens a step, a dot for every threshold tried; the table has the numbers."
    return (
        f'<svg class="md-drawing" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{said}">'
        f'{"".join(marks)}<polyline class="md-curve" points="{line}"/>{"".join(dots)}'
        f'<text x="{_LEFT + wide / 2:.0f}" y="{_HEIGHT - 4}" text-anchor="middle">tokens a step</text></svg>'
    )
