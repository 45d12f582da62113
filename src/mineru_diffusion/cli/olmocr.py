"""`mineru-diffusion eval-olmocr`: olmOCR-bench's tests on Markdown, given or made on the spot."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mineru_diffusion.cli.app import DEVICE_HELP, MODEL_HELP, app, errors_as_exit_codes

if TYPE_CHECKING:
    from mineru_diffusion.evaluation.olmocr import BenchScore


@app.command("eval-olmocr")
def eval_olmocr_command(
    tests: Annotated[Path, typer.Argument(help="File of tests, one JSON object a line.")],
    markdown: Annotated[
        Path | None, typer.Option(help="Folder with the Markdown to score, such as `parse` wrote.")
    ] = None,
    documents: Annotated[Path | None, typer.Option(help="Folder with the PDFs: parse the tested pages now.")] = None,
    oracle: Annotated[
        bool, typer.Option("--oracle", help="With --documents: the PDF's own text in place of what was read.")
    ] = False,
    model: Annotated[Path | None, typer.Option(help=MODEL_HELP)] = None,
    device: Annotated[str, typer.Option(help=DEVICE_HELP)] = "auto",
    out: Annotated[Path | None, typer.Option(help="Write the figures to this JSON file.")] = None,
    keep: Annotated[Path | None, typer.Option(help="With --documents: keep the Markdown in this folder.")] = None,
) -> None:
    """Score Markdown by olmOCR-bench's tests: passes by type."""
    with errors_as_exit_codes():
        from mineru_diffusion.errors import UsageError
        from mineru_diffusion.evaluation.olmocr import load_tests, markdown_files, score_tests

        if (markdown is None) == (documents is None) or (oracle and documents is None):
            raise UsageError("give either --markdown, or --documents (with or without --oracle)")
        facts = load_tests(tests)
        if markdown is not None:
            score = score_tests(facts, markdown_files(markdown))
        else:
            assert documents is not None
            score = _parse_and_score(documents, oracle, model, device, keep, lambda find: score_tests(facts, find))
        typer.echo(_table(score))
        if out is not None:
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_text(json.dumps(asdict(score), indent=1) + "\n", encoding="utf-8")


def _parse_and_score(
    documents: Path,
    oracle: bool,
    model: Path | None,
    device: str,
    keep: Path | None,
    run: Callable[[Callable[[str, int], str | None]], BenchScore],
) -> BenchScore:
    """Parse each tested page once, when the first test asks for it."""
    from mineru_diffusion import load_engine, parse
    from mineru_diffusion.errors import UsageError
    from mineru_diffusion.evaluation.oracle import Oracle
    from mineru_diffusion.parsing.layout import RapidLayoutDetector

    files = {path.stem: path for path in sorted(documents.rglob("*.pdf"))}
    if not files:
        raise UsageError(f"{documents}: no PDF in it; give the folder with the benchmark's documents")
    engine = None if oracle else load_engine(model, device=device)
    packaged = RapidLayoutDetector()

    @cache
    def read(pdf: str, page: int) -> str | None:
        stem = Path(pdf).stem
        path = files.get(stem) or next((p for s, p in files.items() if s.endswith(f"-{stem}")), None)
        if path is None:
            return None
        if engine is not None:
            document = parse(path, engine=engine, pages=str(page))
        else:
            with closing(Oracle(path, detector=packaged)) as knowing:
                document = parse(path, engine=knowing, detector=knowing, pages=str(page))
        markdown = document.to_markdown()
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
            (keep / f"{stem}_pg{page}.md").write_text(markdown, encoding="utf-8")
        return markdown

    try:
        return run(read)
    finally:
        if engine is not None:
            engine.close()


def _table(score: BenchScore) -> str:
    rows = [(kind, score.passed[kind], total) for kind, total in score.total.items() if total]
    rows.append(("all", sum(score.passed.values()), sum(score.total.values())))
    lines = [f"{kind:8}{passed:5} of {total:<5}{passed / total:7.1%}" for kind, passed, total in rows if total]
    if score.missing:
        lines.append(f"no output for {', '.join(score.missing)}")
    return "\n".join(lines or ["no test could be run"])
