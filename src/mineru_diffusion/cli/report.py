"""What the command line says of a run: one line a file that failed, the summary, and the exit code."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import typer

from mineru_diffusion.cli.app import ExitCode
from mineru_diffusion.cli.json_lines import JsonLines, file_record
from mineru_diffusion.document.inputs import expand_inputs
from mineru_diffusion.errors import CheckpointError, PasswordRequired, SourceError, UsageError
from mineru_diffusion.parsing.folder import FileReport, Status
from mineru_diffusion.parsing.progress import Counters


class Report:
    """Collects file reports, says what is worth saying at once, and sums up.

    Args:
        quiet: only errors.
        stats: decoding numbers at the end.
        file: one JSON object a line is written there, for every file as it is done.

    Raises:
        UsageError: `file` cannot be written.
    """

    def __init__(self, *, quiet: bool = False, stats: bool = False, file: Path | None = None) -> None:
        self._quiet = quiet
        self._stats = stats
        self._items: list[FileReport] = []
        self._expected = 0
        self._passed_over: list[Path] = []
        self._started = time.monotonic()
        self._lines = JsonLines(file)

    def expand(self, inputs: Sequence[str], out: Path) -> list[Path]:
        """Inputs to files; an input that does not exist is a failed file, and the others go on.

        Raises:
            UsageError: a glob matches nothing, or something is named that is no file.
        """
        paths = [path for given in inputs for path in self._expand_one(given, out)]
        unique = {path.resolve(): path for path in reversed(paths)}
        found = list(reversed(unique.values()))
        self._expected = len(self._items) + len(found)
        return found

    def _expand_one(self, given: str, out: Path) -> list[Path]:
        try:
            return expand_inputs([given], exclude=[out], passed_over=self._pass_over)
        except SourceError as error:
            self.add(FileReport(Path(given), "failed", error=error))
            return []

    def _pass_over(self, path: Path, reason: str) -> None:
        self._passed_over.append(path)
        self._lines.write({"type": "passed_over", "path": str(path), "reason": reason})

    def add(self, item: FileReport) -> None:
        """One file is done."""
        self._items.append(item)
        self._lines.write(file_record(item))
        if item.error is not None:
            typer.echo(f"error: {item.error}", err=True)
        for warning in item.warnings if not self._quiet else ():
            typer.echo(f"{item.path}: {warning}", err=True)
        if item.status in ("ok", "partial") and not self._quiet:
            typer.echo(str(item.folder))

    def summary(self, *, interrupted: bool = False) -> None:
        """The last lines, on stderr, and the end of the JSON lines."""
        seconds = max(time.monotonic() - self._started, 1e-9)
        total = Counters()
        for item in self._items:
            total.add(item.counters)
        count = {s: sum(i.status == s for i in self._items) for s in get_args(Status)}
        left = self._expected - len(self._items)
        self._lines.write(
            {"type": "summary", **count, "left": left, "passed_over": len(self._passed_over)}
            | {"seconds": round(seconds, 3), "counters": asdict(total), "exit_code": self.exit_code(interrupted)}
        )
        self._lines.close()
        if self._quiet:
            return
        parts = [f"{count['ok']} ok"]
        parts += [f"{count[s]} {word}" for s, word in _WORDS.items() if count[s]]
        if left:
            parts.append(f"{left} left")
        parts.append(f"{total.pages} page(s) in {seconds:.1f} s ({total.pages / seconds:.2f} pages/s)")
        if total.passes:
            parts.append(f"{total.tokens_per_pass:.1f} tokens per pass")
        if self._passed_over:
            parts.append(f"{len(self._passed_over)} file(s) passed over, being neither PDF nor image")
        typer.echo(", ".join(parts), err=True)
        if interrupted:
            typer.echo("interrupted; the same command goes on from here", err=True)
        if self._stats:
            typer.echo(
                f"{total.crops} crops ({total.failed_crops} failed), {total.tokens} tokens in {total.passes} passes, "
                f"{total.tokens / seconds:.0f} tokens/s, {total.failed_pages} failed page(s), "
                f"{total.fallbacks} region(s) by a fallback",
                err=True,
            )

    def exit_code(self, interrupted: bool = False) -> int:
        """See `ExitCode`. `interrupted`: the run was asked to stop; that counts if it left something undone."""
        bad = [i for i in self._items if i.status in ("failed", "partial")]
        if interrupted and (len(self._items) < self._expected or any(i.status == "interrupted" for i in self._items)):
            return ExitCode.INTERRUPTED
        if not bad:
            return ExitCode.OK
        if all(isinstance(i.error, UsageError) for i in bad):
            return ExitCode.USAGE
        if all(isinstance(i.error, PasswordRequired) for i in bad):
            return ExitCode.PASSWORD
        return ExitCode.FAILED if all(i.status == "failed" for i in self._items) else ExitCode.INCOMPLETE


_WORDS = {
    "partial": "with failed pages",
    "failed": "failed",
    "unchanged": "unchanged",
    "interrupted": "begun and interrupted",
}


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
