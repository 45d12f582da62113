"""What a run says: a record every few steps (`log.jsonl`, TensorBoard), evaluations (`evaluation.jsonl`),
transcriptions (`transcriptions.jsonl`), and on a terminal one live line."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from mineru_diffusion.errors import MissingExtra

MOVES = 0.1
"""Weight of the newest step in the loss that the live line shows."""


class RunLog:
    """Writes a run's records. A silent one (`out` None) is for processes other than the first.

    Args:
        out: the run's folder.
        console: for people.
        tensorboard: write events as well.
        max_steps: where the run ends.

    Raises:
        MissingExtra: tensorboard is asked for and not installed.
    """

    def __init__(self, out: Path | None, console: Console, *, tensorboard: bool, max_steps: int) -> None:
        self.out, self.console, self.max_steps = out, console, max_steps
        self._events: Any = None
        if tensorboard and out is not None:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError as error:
                raise MissingExtra("TensorBoard logs", "train") from error
            self._events = SummaryWriter(str(out / "tensorboard"))
        self._live: Live | None = None
        self._started = time.monotonic()
        self._first_step: int | None = None
        self._loss: float | None = None

    def __enter__(self) -> RunLog:
        if self.console.is_terminal and not self.console.quiet and self.out is not None:
            self._live = Live(console=self.console, refresh_per_second=2, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
        if self._events is not None:
            self._events.close()

    def step(self, step: int, loss: float | None, seconds_left: float | None) -> None:
        """Move the live line on.

        Args:
            loss: of this step, if it is known on the processor already.
            seconds_left: of the time limit.
        """
        if self._live is None:
            return
        if self._first_step is None:
            self._first_step, self._started = step, time.monotonic()
        if loss is not None:
            self._loss = loss if self._loss is None else self._loss + MOVES * (loss - self._loss)
        rate = (step - self._first_step) / max(1e-6, time.monotonic() - self._started)
        left = (self.max_steps - step) / rate if rate else None
        if seconds_left is not None:
            left = seconds_left if left is None else min(left, seconds_left)
        parts = [f"step {step:,} of {self.max_steps:,}", f"{rate:.2f} steps/s"]
        parts += [] if self._loss is None else [f"loss {self._loss:.4f}"]
        parts += [] if left is None else [f"{_duration(left)} left"]
        self._live.update(Text("  ".join(parts), no_wrap=True, overflow="ellipsis"))

    def record(self, step: int, record: dict[str, float]) -> None:
        """One line of figures."""
        self._append("log.jsonl", record)
        self._scalars("train", step, record)
        self.console.print("  ".join(f"{name} {value:g}" for name, value in record.items()), highlight=False)

    def evaluation(self, step: int, figures: dict[str, float]) -> None:
        """The figures of an evaluation."""
        rounded = {name: round(value, 4) for name, value in figures.items()}
        self._append("evaluation.jsonl", {"step": step, **rounded})
        self._scalars("held_out", step, figures)
        self.say(f"held-out at step {step}: " + "  ".join(f"{name} {value:g}" for name, value in rounded.items()))

    def transcriptions(self, step: int, pairs: list[tuple[str, str]]) -> None:
        """What the network reads now."""
        for truth, reading in pairs:
            self._append("transcriptions.jsonl", {"step": step, "truth": truth, "reading": reading})
            self.say(f"  truth   {truth}\n  reading {reading}")

    def say(self, text: str) -> None:
        """A line for people."""
        self.console.print(text, highlight=False, markup=False)

    def _append(self, name: str, record: dict[str, Any]) -> None:
        if self.out is not None:
            with (self.out / name).open("a", encoding="utf-8") as file:
                file.write(json.dumps(record, ensure_ascii=False) + "\n")

    def _scalars(self, group: str, step: int, figures: dict[str, float]) -> None:
        if self._events is not None:
            for name, value in figures.items():
                self._events.add_scalar(f"{group}/{name}", value, step)


def _duration(seconds: float) -> str:
    hours, rest = divmod(int(seconds), 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}" if hours else f"{rest // 60}:{rest % 60:02}"
