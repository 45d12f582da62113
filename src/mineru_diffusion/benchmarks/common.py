"""What the benchmarks share: taking turns, tables, the record of what they ran on."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from mineru_diffusion import __version__
from mineru_diffusion.document.crops import fit_line
from mineru_diffusion.engine.types import CheckpointProfile
from mineru_diffusion.evaluation.lines import held_out_lines
from mineru_diffusion.parsing.lines import line_pieces
from mineru_diffusion.parsing.pieces import join_pieces


@dataclass(frozen=True)
class Timing:
    """Medians over the rounds, in seconds: processor time of this process, and the clock on the wall. On a machine
    that does other things as well, and with one thread, processor time is the one to compare."""

    cpu: float
    wall: float


Progress = Callable[[int, int], None]
"""Called with how many turns are over and how many there are."""


class Turns:
    """Counts the turns of a benchmark.

    Args:
        total: turns of the whole benchmark.
        progress: told after each.
    """

    def __init__(self, total: int, progress: Progress | None) -> None:
        self._total, self._progress, self._over = total, progress, 0

    def over(self) -> None:
        """A turn is over."""
        self._over += 1
        if self._progress is not None:
            self._progress(self._over, self._total)


def race(
    contestants: Mapping[str, Callable[[], object]], rounds: int, turns: Turns, *, warm: bool = True
) -> dict[str, Timing]:
    """Let all take turns `rounds` times, after one turn each that does not count (`warm`)."""
    for run in contestants.values() if warm else ():
        run()
        turns.over()
    cpu: dict[str, list[float]] = {name: [] for name in contestants}
    wall: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, run in contestants.items():
            started = time.process_time(), time.perf_counter()
            run()
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            cpu[name].append(time.process_time() - started[0])
            wall[name].append(time.perf_counter() - started[1])
            turns.over()
    return {name: Timing(statistics.median(cpu[name]), statistics.median(wall[name])) for name in contestants}


@dataclass(frozen=True)
class TextCrops:
    """Crops of held-out lines as the parser would send them.

    Attributes:
        images: the crops.
        truths: the lines' texts.
        line_of_crop: the line that each crop is a piece of.
        glued: of each line, the numbers of its pieces that go on inside a word.
    """

    images: tuple[Image.Image, ...]
    truths: tuple[str, ...]
    line_of_crop: tuple[int, ...]
    glued: tuple[frozenset[int], ...]

    def lines(self, texts: Sequence[str]) -> list[str]:
        """The lines' texts from those of their crops."""
        parts: list[list[str]] = [[] for _ in self.truths]
        for line, text in zip(self.line_of_crop, texts, strict=True):
            parts[line].append(text)
        return [join_pieces(pieces, glued) for pieces, glued in zip(parts, self.glued, strict=True)]


def text_crops(profile: CheckpointProfile, factor: int, count: int, *, seed: int = 5) -> TextCrops:
    """At least `count` crops of held-out lines, none of them a part of another."""
    height = profile.line_height or 32
    samples = [sample for sample, _ in held_out_lines(count, seed=seed, height=height)]
    cut = [line_pieces(Image.fromarray(sample.image), profile.line_max_aspect) for sample in samples]
    return TextCrops(
        tuple(fit_line(piece, height=height, multiple=factor) for pieces, _ in cut for piece in pieces),
        tuple(sample.text for sample in samples),
        tuple(line for line, (pieces, _) in enumerate(cut) for _ in pieces),
        tuple(glued for _, glued in cut),
    )


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Records as an aligned Markdown table, field names on top."""
    if not rows:
        return ""
    names = list(rows[0])
    cells = [names, *([_shown(row[name]) for name in names] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(names))]
    lines = ["| " + " | ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)) + " |" for row in cells]
    return "\n".join([lines[0], "|" + "|".join("-" * (w + 1) + ":" for w in widths) + "|", *lines[1:]])


def _shown(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else "" if value is None else str(value)


def surroundings() -> dict[str, Any]:
    """What the numbers depend on besides the code."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else torch.backends.cpu.get_cpu_capability()
    return {"version": __version__, "torch": torch.__version__, "device": device, "threads": torch.get_num_threads()}


def save(path: Path | None, name: str, rows: Sequence[Mapping[str, Any]], **more: Any) -> None:
    """Write a benchmark's record as JSON, if a path is given."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        record = {"benchmark": name, **surroundings(), **more, "rows": [dict(row) for row in rows]}
        path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
