"""What is in a set of samples, in numbers: by task the lengths, sizes, fonts and kinds; over all the characters.

In: samples. Out: plain values for JSON, and a Rich table of the most important ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from mineru_diffusion.synthesis.sample import Sample

if TYPE_CHECKING:
    from rich.table import Table


@dataclass
class _Task:
    chars: list[int] = field(default_factory=list)
    widths: list[int] = field(default_factory=list)
    heights: list[int] = field(default_factory=list)
    boxes: list[int] = field(default_factory=list)
    fonts: Counter[str] = field(default_factory=Counter)
    generators: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)


class Statistics:
    """Counts samples as they pass."""

    def __init__(self) -> None:
        self._tasks: dict[str, _Task] = {}
        self._characters: Counter[str] = Counter()

    def add(self, sample: Sample) -> None:
        """Count one sample."""
        task = self._tasks.setdefault(sample.task, _Task())
        task.chars.append(len(sample.target))
        task.heights.append(sample.image.shape[0])
        task.widths.append(sample.image.shape[1])
        task.generators[str(sample.source.get("generator", "unknown"))] += 1
        if font := sample.source.get("font"):
            task.fonts[str(font)] += 1
        if sample.layout:
            task.boxes.append(len(sample.layout))
            task.kinds.update(box.kind for box in sample.layout)
        if sample.task == "text":
            self._characters.update(sample.target)

    def as_plain(self) -> dict[str, Any]:
        """Everything, as JSON can hold it; `characters` counts those of text targets."""
        tasks = {}
        for name, task in sorted(self._tasks.items()):
            tasks[name] = {
                "samples": len(task.chars),
                "target_characters": _spread(task.chars),
                "image_width": _spread(task.widths),
                "image_height": _spread(task.heights),
                "generators": dict(task.generators.most_common()),
                "fonts": dict(task.fonts.most_common()),
            }
            if task.boxes:
                tasks[name] |= {"boxes": _spread(task.boxes), "kinds": dict(task.kinds.most_common())}
        return {
            "samples": sum(len(task.chars) for task in self._tasks.values()),
            "tasks": tasks,
            "characters": dict(self._characters.most_common()),
        }


def collect(samples: Iterable[Sample]) -> dict[str, Any]:
    """The statistics of samples, see `Statistics.as_plain`."""
    statistics = Statistics()
    for sample in samples:
        statistics.add(sample)
    return statistics.as_plain()


def as_table(plain: dict[str, Any]) -> Table:
    """The main numbers by task (minimum, median and maximum where a range is meant)."""
    from rich.table import Table

    table = Table(title=f"{plain['samples']} samples")
    table.add_column("task")
    for column in ("samples", "target characters", "image width", "image height", "boxes", "fonts"):
        table.add_column(column, justify="right")
    for name, task in plain["tasks"].items():
        ranges = [_range(task.get(key)) for key in ("target_characters", "image_width", "image_height", "boxes")]
        table.add_row(name, str(task["samples"]), *ranges, str(len(task["fonts"])))
    return table


def _spread(values: list[int]) -> dict[str, float]:
    quantiles = np.quantile(values, (0, 0.05, 0.5, 0.95, 1)).round(1).tolist()
    return {**dict(zip(("min", "p5", "median", "p95", "max"), quantiles, strict=True)), "sum": sum(values)}


def _range(spread: dict[str, float] | None) -> str:
    return "–" if spread is None else f"{spread['min']:.0f} – {spread['median']:.0f} – {spread['max']:.0f}"
