"""`mineru-diffusion eval`: a checkpoint's accuracy and speed on fresh lines, or all its tasks against their floors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mineru_diffusion.cli.app import DEVICE_HELP, DTYPE_HELP, app, errors_as_exit_codes
from mineru_diffusion.cli.counting import counted

if TYPE_CHECKING:
    from mineru_diffusion.evaluation.curve import SpeedCurve
    from mineru_diffusion.evaluation.tasks import TaskScore


@app.command("eval")
def eval_command(
    model: Annotated[Path | None, typer.Argument(help="Checkpoint folder; the packaged one if left out.")] = None,
    lines: Annotated[int, typer.Option(help="Text lines to read.", min=1)] = 500,
    thresholds: Annotated[
        str | None, typer.Option(help="Confidence thresholds, comma-separated. Default: a sweep from 0.5 to 1.")
    ] = None,
    tasks: Annotated[
        str | None,
        typer.Option(help="Measure tasks against their floors instead: some of text,formula,table,layout, or all."),
    ] = None,
    samples: Annotated[int, typer.Option(help="Formulas, tables and pages to read, each.", min=1)] = 100,
    force: Annotated[
        bool, typer.Option("--force", help="Also measure tasks that the checkpoint does not offer.")
    ] = False,
    policies: Annotated[
        str | None,
        typer.Option(
            help="Compare unmasking policies with one token a step: some of threshold,prefix,factor,entropy,fixed."
        ),
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw accuracy over tokens per pass into this PNG file.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the samples.")] = 0,
    device: Annotated[str, typer.Option(help=DEVICE_HELP)] = "auto",
    dtype: Annotated[str, typer.Option(help=DTYPE_HELP)] = "auto",
    out: Annotated[Path | None, typer.Option(help="Write the numbers to this JSON file.")] = None,
) -> None:
    """Measure a checkpoint's accuracy and tokens per pass on fresh text lines.

    With --tasks: every task on held-out data against the floor that it must reach. With --policies or --plot: the speed
    that each unmasking policy reaches while it keeps the accuracy of one token a step.
    """
    with errors_as_exit_codes():
        from mineru_diffusion.cli.report import parse_thresholds, score_table
        from mineru_diffusion.errors import UsageError

        if tasks is not None and (policies is not None or plot is not None):
            raise UsageError("--tasks measures at the checkpoint's own settings: run --policies or --plot without it")
        chosen = None if thresholds is None else parse_thresholds(thresholds)
        common: dict[str, Any] = {"lines": lines, "seed": seed, "device": device, "dtype": dtype}
        if tasks is not None:
            from mineru_diffusion.evaluation.tasks import TASKS, evaluate_tasks

            names = TASKS if tasks == "all" else _names(tasks)
            with counted("sets") as progress:
                found = evaluate_tasks(model, names, samples=samples, force=force, out=out, progress=progress, **common)
            typer.echo(_task_table(found))
            return
        if policies is not None or plot is not None:
            typer.echo(_curve_tables(_curve(model, policies, chosen, plot, out, **common)))
            return
        from mineru_diffusion.evaluation.lines import evaluate_lines

        sweep: dict[str, Any] = {} if chosen is None else {"thresholds": chosen}
        with counted("thresholds") as progress:
            scores = evaluate_lines(model, out=out, progress=progress, **sweep, **common)
        typer.echo(score_table(scores))


def _names(given: str) -> list[str]:
    return [name.strip() for name in given.split(",") if name.strip()]


def _curve(
    model: Path | None,
    policies: str | None,
    thresholds: tuple[float, ...] | None,
    plot: Path | None,
    out: Path | None,
    *,
    lines: int,
    seed: int,
    device: str,
    dtype: str,
) -> SpeedCurve:
    from mineru_diffusion.errors import UsageError
    from mineru_diffusion.evaluation.curve import DEFAULT_SWEEPS, speed_curve
    from mineru_diffusion.evaluation.lines import borrowed_engine

    if plot is not None:  # a missing package should show before the long measurement
        from mineru_diffusion.evaluation.plots import plot_speed_curve
    names = ["threshold"] if policies is None else _names(policies)
    unknown = sorted(set(names) - set(DEFAULT_SWEEPS))
    if unknown or not names:
        raise UsageError(f"unknown policy {', '.join(unknown)}: use some of {', '.join(DEFAULT_SWEEPS)}")
    sweeps = {name: DEFAULT_SWEEPS[name] for name in names}
    if thresholds is not None:
        sweeps["threshold"] = thresholds
    with borrowed_engine(None, model, device=device, dtype=dtype) as engine, counted("settings") as progress:
        curve = speed_curve(engine, sweeps, lines=lines, seed=seed, progress=progress)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(curve.to_plain(), indent=1) + "\n", encoding="utf-8")
    if plot is not None:
        plot_speed_curve(curve, plot)
    return curve


def _curve_tables(curve: SpeedCurve) -> str:
    from mineru_diffusion.cli.report import score_table

    parts = [score_table([curve.baseline, *curve.points]), ""]
    for row in curve.speeds():
        start = f"{row['kept']:.1%} of the accuracy kept, {row['policy']}: "
        if row["times"] is None:
            parts.append(start + "not reached")
        else:
            parts.append(
                f"{start}{row['tokens_per_pass']:.2f} tokens a pass at {row['value']:g}, "
                f"{row['times']:.2f} times one token a step"
            )
    return "\n".join(parts)


def _task_table(scores: list[TaskScore]) -> str:
    rows: list[tuple[str, ...]] = [
        ("task", "metric", "figure", "floor", "unseen fonts", "samples", "tokens/pass", "verdict", "further")
    ]
    for s in scores:
        more = ", ".join(f"{name} {value:.4g}" for name, value in s.more.items())
        figures = [("" if v is None else f"{v:.4g}") for v in (s.figure, s.floor, s.unseen_fonts)]
        rate = "" if s.tokens_per_pass is None else f"{s.tokens_per_pass:.2f}"
        rows.append((s.name, s.metric, *figures, str(s.samples or ""), rate, s.verdict, more))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join(line.rstrip() for line in lines)
