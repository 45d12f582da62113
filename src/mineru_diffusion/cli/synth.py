"""`mineru-diffusion synth`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mineru_diffusion.cli.app import app, errors_as_exit_codes
from mineru_diffusion.cli.counting import sample_progress

if TYPE_CHECKING:
    from mineru_diffusion.synthesis.sample import Sample

_LOOKED_AT, _SHOWN_OF_EACH = 300, 6
_PREVIEWS: dict[str, dict[str, object]] = {
    ".png": {"format": "PNG", "optimize": True},
    ".jpg": {"format": "JPEG", "quality": 75},
    ".jpeg": {"format": "JPEG", "quality": 75},
    ".webp": {"format": "WebP", "quality": 50, "method": 6},
}
"""How a preview is written, by its suffix."""


class Split(str, Enum):
    """Training data, or data with words, formulas and fonts that training never shows."""

    train = "train"
    heldout = "heldout"


@app.command("synth")
def synth_command(
    out: Annotated[Path, typer.Argument(help="Folder for the shards. A rerun goes on where the last one ended.")],
    count: Annotated[int, typer.Option("--count", "-n", help="Samples.", min=1)] = 1000,
    tasks: Annotated[
        str,
        typer.Option(
            help="Kinds of data, comma-separated, with weights: line, text, table, formula, layout, region. "
            "E.g. text=4,table=1."
        ),
    ] = "line=3,text=2,table=1,formula=1,layout=1",
    seed: Annotated[int, typer.Option(help="Equal options and seed give equal samples.", min=0)] = 0,
    split: Annotated[Split, typer.Option(help="train, or heldout: other words, formulas and fonts.")] = Split.train,
    degrade: Annotated[float, typer.Option(help="0: clean. 1: half of the samples worn. More: worse.", min=0)] = 1.0,
    shard_size: Annotated[int, typer.Option(help="Samples a file.", min=1)] = 1000,
    workers: Annotated[int, typer.Option(help="Processes.", min=1)] = 1,
    preview: Annotated[
        Path | None, typer.Option(help="Also draw some samples with their truth to this PNG, JPEG or WebP.")
    ] = None,
    stats: Annotated[
        bool, typer.Option("--stats", help="Also write statistics.json and show its main numbers.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only errors.")] = False,
) -> None:
    """Make training data with exact truth, as Parquet shards."""
    with errors_as_exit_codes():
        from mineru_diffusion.errors import UsageError
        from mineru_diffusion.synthesis.mixture import Mixture
        from mineru_diffusion.synthesis.shard_maker import make_shards

        weights = parse_weights(tasks)
        if preview is not None and preview.suffix.lower() not in _PREVIEWS:
            raise UsageError(f"{preview}: previews are written as {', '.join(_PREVIEWS)}")
        stream = Mixture(weights, seed, split.value, degrade=degrade)
        facts = {"tasks": weights, "seed": seed, "split": split.value, "degrade": degrade}
        with sample_progress(count, shown=not quiet) as progress:
            report = make_shards(
                stream, out, count, facts=facts, shard_size=shard_size, workers=workers, progress=progress
            )
        if not quiet:
            kept = f", {report.kept} were there" if report.kept else ""
            typer.echo(f"{report.made} samples made{kept}: {len(report.paths)} file(s) in {out}", err=True)
        if preview is not None:
            _draw_preview(report.paths, preview)
        if stats:
            _write_statistics(report.paths, out / "statistics.json", quiet=quiet)


def parse_weights(text: str) -> dict[str, float]:
    """`text=4,table` as `{"text": 4.0, "table": 1.0}`.

    Raises:
        UsageError: a weight is not a positive number, or a name comes twice or is empty.
    """
    from mineru_diffusion.errors import UsageError

    weights: dict[str, float] = {}
    for part in text.split(","):
        name, _, number = (piece.strip() for piece in part.partition("="))
        try:
            weight = float(number or 1)
        except ValueError:
            weight = 0.0
        if not name or name in weights or not 0 < weight < float("inf"):
            raise UsageError(f"bad --tasks entry {part.strip()!r}: write name or name=weight, each name once")
        weights[name] = weight
    return weights


def _draw_preview(paths: list[Path], preview: Path) -> None:
    from itertools import islice

    from mineru_diffusion.synthesis.preview import preview_sheet
    from mineru_diffusion.synthesis.shards import read_shards

    preview.parent.mkdir(parents=True, exist_ok=True)
    sheet = preview_sheet(list(_some_of_each(islice(read_shards(paths), _LOOKED_AT))))
    sheet.save(preview, **_PREVIEWS[preview.suffix.lower()])  # type: ignore[arg-type]


def _some_of_each(samples: Iterable[Sample]) -> Iterator[Sample]:
    seen: Counter[object] = Counter()
    for sample in samples:
        kind = (sample.source.get("generator"), sample.task)
        seen[kind] += 1
        if seen[kind] <= _SHOWN_OF_EACH:
            yield sample


def _write_statistics(paths: list[Path], path: Path, *, quiet: bool) -> None:
    import json

    from rich.console import Console

    from mineru_diffusion.synthesis.shards import read_shards
    from mineru_diffusion.synthesis.statistics import as_table, collect

    plain = collect(read_shards(paths))
    path.write_text(json.dumps(plain, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    if not quiet:
        Console().print(as_table(plain))
