"""What the command line shows: progress bars, one line a file that failed, and the summary."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer

from mineru_diffusion.document.inputs import expand_inputs
from mineru_diffusion.document.types import Page
from mineru_diffusion.errors import CheckpointError, SourceError, UsageError
from mineru_diffusion.parsing.folder import FileReport
from mineru_diffusion.parsing.progress import Counters, Progress, Silent


class Report:
    """Collects file reports, says what is worth saying at once, and sums up.

    Args:
        quiet: only errors.
        stats: decoding numbers at the end.
    """

    def __init__(self, *, quiet: bool = False, stats: bool = False) -> None:
        self._quiet = quiet
        self._stats = stats
        self._items: list[FileReport] = []
        self._started = time.monotonic()

    def expand(self, inputs: Sequence[str], out: Path) -> list[Path]:
        """Inputs to files; an input that does not exist is a failed file, and the others go on.

        Raises:
            UsageError: a glob matches nothing.
        """
        paths = [path for given in inputs for path in self._expand_one(given, out)]
        unique = {path.resolve(): path for path in reversed(paths)}
        return list(reversed(unique.values()))

    def _expand_one(self, given: str, out: Path) -> list[Path]:
        try:
            return expand_inputs([given], exclude=[out])
        except SourceError as error:
            self.add(FileReport(Path(given), "failed", error=error))
            return []

    def add(self, item: FileReport) -> None:
        """One file is done."""
        self._items.append(item)
        if item.error is not None:
            typer.echo(f"error: {item.error}", err=True)
        for warning in item.warnings if not self._quiet else ():
            typer.echo(f"{item.path.name}: {warning}", err=True)
        if item.status in ("ok", "partial") and not self._quiet:
            typer.echo(str(item.folder))

    def summary(self) -> None:
        """The last lines, on stderr."""
        if self._quiet:
            return
        seconds = max(time.monotonic() - self._started, 1e-9)
        total = Counters()
        for item in self._items:
            total.add(item.counters)
        count = {s: sum(i.status == s for i in self._items) for s in ("ok", "partial", "failed", "unchanged")}
        parts = [f"{count['ok']} ok"]
        parts += [f"{count[s]} {word}" for s, word in _WORDS.items() if count[s]]
        parts.append(f"{total.pages} page(s) in {seconds:.1f} s ({total.pages / seconds:.2f} pages/s)")
        if total.passes:
            parts.append(f"{total.tokens_per_pass:.1f} tokens per pass")
        typer.echo(", ".join(parts), err=True)
        if self._stats:
            typer.echo(
                f"{total.crops} crops ({total.failed_crops} failed), {total.tokens} tokens in {total.passes} passes, "
                f"{total.tokens / seconds:.0f} tokens/s, {total.failed_pages} failed page(s), "
                f"{total.fallbacks} region(s) by a fallback",
                err=True,
            )

    @property
    def exit_code(self) -> int:
        """0 if all went well, 2 if only the call was at fault, else 1."""
        bad = [i for i in self._items if i.status in ("failed", "partial")]
        if not bad:
            return 0
        return 2 if all(isinstance(i.error, UsageError) for i in bad) else 1


_WORDS = {"partial": "with failed pages", "failed": "failed", "unchanged": "unchanged"}


@contextmanager
def progress_bars(*, shown: bool) -> Iterator[Progress]:
    """A bar for every open document and one for the crops, on stderr; nothing where stderr is no terminal."""
    from rich.console import Console

    console = Console(stderr=True)
    if not shown or not console.is_terminal:
        yield Silent()
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as RichProgress

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with RichProgress(*columns, console=console, transient=True) as bars:
        yield _Bars(bars)


class _Bars:
    def __init__(self, bars: Any) -> None:
        self._bars = bars
        self._crops = bars.add_task("regions", total=None)
        self._tasks: dict[Path, tuple[Any, int]] = {}

    def document_opened(self, path: Path, pages: int) -> None:
        self._tasks[path] = (self._bars.add_task(f"{path.name[:40]} (pages)", total=pages), pages)

    def page_finished(self, path: Path, page: Page) -> None:
        if path not in self._tasks:
            return
        task, left = self._tasks[path]
        self._bars.advance(task)
        self._tasks[path] = (task, left - 1)
        if left == 1:
            # Thousands of files must not become thousands of bars.
            self._bars.remove_task(task)
            del self._tasks[path]

    def crops(self, submitted: int, finished: int) -> None:
        self._bars.update(self._crops, total=submitted, completed=finished)


def parse_thresholds(spec: str) -> tuple[float, ...]:
    """Comma-separated numbers in (0, 1].

    Raises:
        UsageError: something else.
    """
    try:
        values = tuple(float(part) for part in spec.split(",") if part.strip())
    except ValueError:
        values = ()
    if not values or not all(0 < v <= 1 for v in values):
        raise UsageError(f"thresholds must be numbers in (0, 1], comma-separated, not {spec!r}")
    return values


def score_table(scores: Sequence[Any]) -> str:
    """Dataclass records as an aligned table, one a row, field names on top."""
    rows = [asdict(score) for score in scores]
    if not rows:
        return ""
    cells = [list(rows[0]), *([f"{v:.4g}" if isinstance(v, float) else str(v) for v in row.values()] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in cells)


def describe_checkpoint(folder: Path) -> dict[str, str]:
    """What a checkpoint folder says about itself, without loading the model.

    Raises:
        CheckpointError: its configuration is missing or unreadable.
    """
    config, generation = _read(folder / "config.json"), _read(folder / "generation_config.json", needed=False)
    text = config.get("text_config") or config.get("language_model_config") or {}
    ours = generation.get("mineru_diffusion", {})
    size = sum(f.stat().st_size for f in folder.glob("*.safetensors"))
    return {
        "folder": str(folder),
        "decoder": f"{text.get('num_hidden_layers', '?')} layers of width {text.get('hidden_size', '?')}",
        "vocabulary": str(text.get("vocab_size", "?")),
        "weights": f"{size / 2**20:.1f} MiB",
        "tasks": ", ".join(ours.get("tasks", ("text", "table", "formula", "layout"))),
        "reads": f"one {ours.get('text_unit', 'region')} at a time",
        "threshold": str(ours.get("threshold", "0.95")),
    }


def _read(path: Path, *, needed: bool = True) -> dict[str, Any]:
    try:
        data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if not needed:
            return {}
        raise CheckpointError(f"{path}: no such file; is this a checkpoint folder?") from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be read: {error}") from error
    return data
