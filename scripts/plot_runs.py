"""Learning curves of training runs, from their `log.jsonl` and `evaluation.jsonl`, as one picture:

    python scripts/plot_runs.py out/train/tiny -o curves.png
    python scripts/plot_runs.py diffusion=out/tiny twin=out/tiny_ar -o curves.png     beside each other
    python scripts/plot_runs.py out/vision out/decoder out/tiny --chain -o curves.png one after the other

A faint line is what was logged, a strong one its moving average. Only panels for which there is something are drawn.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

Records = list[dict[str, float]]

PANELS: dict[str, tuple[str, ...]] = {
    "loss": ("loss",),
    "answer tokens predicted rightly": ("accuracy",),
    "helper tasks, share that is right": ("slot_accuracy", "spelling_accuracy", "alignment_hits", "place_hits"),
    "held-out similarity": (),
}
HELD_OUT = "held-out similarity"
X_LABELS = {"step": "optimizer steps", "samples": "samples seen", "minutes": "minutes"}
STYLES = ("-", "--", ":", "-.")


@dataclass
class Run:
    """One run's figures, in the order of its steps.

    Attributes:
        name: for the legend.
        log: records of `log.jsonl`.
        evaluation: of `evaluation.jsonl`, with the x values of the log put in.
    """

    name: str
    log: Records
    evaluation: Records


def read_records(path: Path) -> Records:
    """The records of a log in the order of steps. A run that was killed and resumed has logged some steps twice: the
    later record counts, and a last line that was cut off does not."""
    found: dict[float, dict[str, float]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue
        found = {step: old for step, old in found.items() if step < record["step"]}
        found[record["step"]] = record
    return list(found.values())


def read_run(text: str) -> Run:
    """A run from `FOLDER` or `NAME=FOLDER`; the folder's name is its name otherwise.

    Raises:
        FileNotFoundError: the folder has no log.
        ValueError: the log has no record.
    """
    name, _, folder = text.rpartition("=")
    path = Path(folder)
    log = read_records(path / "log.jsonl")
    if not log:
        raise ValueError(f"{path / 'log.jsonl'}: no records yet")
    evaluation = []
    if (path / "evaluation.jsonl").is_file():
        steps = [record["step"] for record in log]
        for record in read_records(path / "evaluation.jsonl"):
            places = {x: float(np.interp(record["step"], steps, [r[x] for r in log])) for x in X_LABELS}
            evaluation.append({**record, **places})
    return Run(name or path.resolve().name, log, evaluation)


def chained(runs: list[Run]) -> list[Run]:
    """The runs with their x values moved behind the end of the run before."""
    ends = dict.fromkeys(X_LABELS, 0.0)
    moved = []
    for run in runs:
        shift = dict(ends)

        def move(records: Records, shift: dict[str, float] = shift) -> Records:
            return [{**record, **{x: record[x] + shift[x] for x in X_LABELS}} for record in records]

        moved.append(Run(run.name, move(run.log), move(run.evaluation)))
        ends = {x: moved[-1].log[-1][x] for x in X_LABELS}
    return moved


def smoothed(values: NDArray[np.float64], width: int) -> NDArray[np.float64]:
    """Centred moving average over `width` records, over fewer at the ends."""
    sums = np.convolve(values, np.ones(width), mode="same")
    return sums / np.convolve(np.ones_like(values), np.ones(width), mode="same")


def _line(axes: Axes, records: Records, x: str, name: str, label: str, width: int, **style: object) -> None:
    points = np.array([(r[x], r[name]) for r in records if name in r], dtype=np.float64)
    width = min(width, max(1, len(points) // 3))
    if width > 1:
        axes.plot(points[:, 0], points[:, 1], alpha=0.25, linewidth=0.8, **style)  # type: ignore[arg-type]
    axes.plot(points[:, 0], smoothed(points[:, 1], width), label=label, linewidth=1.6, **style)  # type: ignore[arg-type]


def draw(runs: list[Run], path: Path, *, x: str = "samples", width: int = 9, chain: bool = False) -> list[str]:
    """Draw the panels for which some run has figures; returns their titles.

    Args:
        x: key of the x axis, one of X_LABELS.
        width: records that the moving average takes.
        chain: the runs follow each other.
    """
    shown = chained(runs) if chain else runs
    names = dict(PANELS)
    names[HELD_OUT] = tuple(dict.fromkeys(k for run in shown for r in run.evaluation for k in r if k not in X_LABELS))
    logged = {key for run in shown for record in (*run.log, *run.evaluation) for key in record}
    panels = {title: [n for n in keys if n in logged] for title, keys in names.items()}
    panels = {title: keys for title, keys in panels.items() if keys}
    figure = Figure(figsize=(4.6 * len(panels), 3.6), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    for axes, (title, keys) in zip(
        np.atleast_1d(figure.subplots(1, len(panels), sharex=True)), panels.items(), strict=True
    ):
        for number, run in enumerate(shown):
            records = run.evaluation if title == HELD_OUT else run.log
            for place, name in enumerate(n for n in keys if any(n in r for r in records)):
                label = name if len(keys) > 1 else run.name
                label = f"{run.name}: {name}" if len(keys) > 1 and len(runs) > 1 and not chain else label
                # Chained runs go on in one another's colours; others have colours of their own.
                colour = f"C{keys.index(name) if len(keys) > 1 and (chain or len(runs) == 1) else number}"
                style = STYLES[place % len(STYLES)] if len(runs) > 1 and not chain else "-"
                _line(axes, records, x, name, label, 1 if title == HELD_OUT else width, color=colour, linestyle=style)
            if chain and number:
                axes.axvline(shown[number - 1].log[-1][x], color="0.7", linewidth=0.8, linestyle=":")
        axes.set_title(title, fontsize=10)
        axes.set_xlabel(X_LABELS[x], fontsize=9)
        axes.tick_params(labelsize=8)
        axes.grid(alpha=0.3)
        if title == "loss":
            axes.set_ylim(bottom=0)
        else:
            axes.set_ylim(0, 1)
        handles = dict(zip(*axes.get_legend_handles_labels()[::-1], strict=True))
        axes.legend(handles.values(), handles.keys(), fontsize=7)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    return list(panels)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="[NAME=]FOLDER", help="folders with a log.jsonl")
    parser.add_argument("-o", "--out", type=Path, default=Path("curves.png"), help="picture (.png, .svg, .pdf)")
    parser.add_argument("--x", choices=tuple(X_LABELS), default="samples", help="x axis")
    parser.add_argument("--smooth", type=int, default=9, help="log records that the moving average takes")
    parser.add_argument("--chain", action="store_true", help="the runs follow each other, as init_from chains them")
    options = parser.parse_args(arguments)
    try:
        runs = [read_run(text) for text in options.runs]
    except (FileNotFoundError, ValueError) as error:
        sys.exit(f"no curves: {error}")
    titles = draw(runs, options.out, x=options.x, width=max(1, options.smooth), chain=options.chain)
    print(f"{options.out}: {', '.join(titles)}")


if __name__ == "__main__":
    main()
