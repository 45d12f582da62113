"""`mineru-diffusion bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from mineru_diffusion.cli.app import DEVICE_HELP, app, errors_as_exit_codes
from mineru_diffusion.cli.counting import counted

BENCHMARKS = {
    "decode": "the engine against a plain loop, single crops and a page",
    "ar": "diffusion against its autoregressive twin (--twin)",
    "curve": "accuracy against tokens a pass for all unmasking policies (--plot)",
    "roofline": "share of this machine's matrix product speed",
    "scale": "sequence length, number of requests, memory over many pages",
}
NAMES_HELP = "; ".join(f"{name}: {what}" for name, what in BENCHMARKS.items()) + "."


@app.command("bench")
def bench_command(
    name: Annotated[str, typer.Argument(help=NAMES_HELP, metavar="NAME")],
    model: Annotated[Path | None, typer.Option(help="Checkpoint folder; each benchmark has its own default.")] = None,
    twin: Annotated[
        Path | None, typer.Option(help="The autoregressive checkpoint (ar); the packaged one if left out.")
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="Turns of each contestant (not curve).", min=1)] = None,
    lines: Annotated[int | None, typer.Option(help="Lines to read with every setting (curve).", min=1)] = None,
    pages: Annotated[int | None, typer.Option(help="Pages of the long run (scale).", min=1)] = None,
    plot: Annotated[Path | None, typer.Option(help="PNG file to draw (curve).")] = None,
    device: Annotated[str, typer.Option(help=DEVICE_HELP)] = "auto",
    out: Annotated[Path | None, typer.Option(help="Write the numbers to this JSON file.")] = None,
) -> None:
    """Measure this machine. Ratios compare what ran in turns in one run; for stable ones set OMP_NUM_THREADS=1."""
    with errors_as_exit_codes():
        from mineru_diffusion.errors import UsageError

        given: dict[str, Any] = {"twin": twin, "rounds": rounds, "lines": lines, "pages": pages, "plot": plot}
        given = {option: value for option, value in given.items() if value is not None}
        known = {
            "decode": {"rounds"},
            "ar": {"twin", "rounds"},
            "curve": {"lines", "plot"},
            "roofline": {"rounds"},
            "scale": {"rounds", "pages"},
        }
        if name not in known:
            raise UsageError(f"unknown benchmark {name!r}; use one of {', '.join(BENCHMARKS)}")
        strange = sorted(set(given) - known[name])
        if strange:
            raise UsageError(f"bench {name} does not take --{', --'.join(strange)}")
        with counted("settings" if name == "curve" else "turns") as progress:
            report = _run(name, model, {**given, "device": device, "out": out, "progress": progress})
        typer.echo(report)


def _run(name: str, model: Path | None, options: dict[str, Any]) -> str:
    if name == "decode":
        from mineru_diffusion.benchmarks.decode import bench_decode

        return bench_decode(model, **options)
    if name == "ar":
        from mineru_diffusion.benchmarks.ar import bench_ar

        return bench_ar(model, **options)
    if name == "curve":
        from mineru_diffusion.benchmarks.curve import bench_curve

        return bench_curve(model, **options)
    if name == "roofline":
        from mineru_diffusion.benchmarks.roofline import bench_roofline

        return bench_roofline(model, **options)
    from mineru_diffusion.benchmarks.scale import bench_scale

    return bench_scale(model, **options)
