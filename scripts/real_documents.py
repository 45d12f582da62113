"""Run real documents through `parse` and print a table: pages, seconds, regions, and the character error rate of text
regions against the PDF's own text layer.

    python scripts/real_documents.py FILE... [--password W] [--model FOLDER] [--threshold T] [--out FILE]

The error rate is taken region by region (the text layer inside the region's box), so it measures reading, not layout;
it is given for upright pages with a text layer of mostly ASCII prose.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from pathlib import Path
from typing import Any

import pypdfium2 as pdfium
from rich.console import Console
from rich.table import Table

from mineru_diffusion import load_engine, parse
from mineru_diffusion.document.types import Document, Page
from mineru_diffusion.errors import MinerUDiffusionError, PasswordRequired
from mineru_diffusion.evaluation.metrics import character_errors
from mineru_diffusion.synthesis.charset import normalise

PROSE_KINDS = {"text", "title", "list", "ref_text", "image_caption", "table_caption"}
MIN_CHARS = 40


def plain(text: str) -> str:
    """Whitespace and line-end hyphens normalised, Markdown list bullets kept."""
    text = normalise(text.replace("\ufffe", "-").replace("\r", ""))
    text = re.sub(r"(\w)-\n(\w)", r"\1\2", text)
    return re.sub(r"\s+", " ", text).strip()


def is_prose(text: str) -> bool:
    """Mostly ASCII letters and spaces: a text layer that can be trusted as English prose."""
    return len(text) >= MIN_CHARS and sum(c.isascii() and (c.isalpha() or c in " .,'-") for c in text) / len(text) > 0.9


def region_errors(pdf: pdfium.PdfDocument, page: Page) -> tuple[int, int]:
    """Character errors and characters over the prose regions of one page."""
    source = pdf[page.index]
    if source.get_rotation() or any(region.angle for region in page.regions):
        return 0, 0
    left, bottom, right, top = source.get_cropbox()
    width, height = right - left, top - bottom
    layer = source.get_textpage()
    errors = total = 0
    for region in page.regions:
        if region.kind not in PROSE_KINDS:
            continue
        x0, y0, x1, y1 = region.bbox
        truth = plain(
            layer.get_text_bounded(
                left + x0 * width - 1, top - y1 * height - 1, left + x1 * width + 1, top - y0 * height + 1
            )
        )
        if not is_prose(truth):
            continue
        errors += min(len(truth), character_errors(plain(region.content), truth))
        total += len(truth)
    return errors, total


def measure(path: Path, document: Document, password: str | None) -> tuple[int, int]:
    """Errors and characters of a whole document; zeros where there is no text layer."""
    if path.suffix.lower() != ".pdf":
        return 0, 0
    pdf = pdfium.PdfDocument(path, password=password)
    found = [region_errors(pdf, page) for page in document.pages]
    return sum(e for e, _ in found), sum(t for _, t in found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--password", help="tried where a document asks for one")
    parser.add_argument("--model", type=Path)
    parser.add_argument("--threshold", type=float)
    parser.add_argument("--max-pages", type=int, help="pages of each document at most")
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    arguments = parser.parse_args()
    engine = load_engine(arguments.model)
    table = Table("document", "pages", "seconds", "regions", "CER", "characters", "remark")
    rows: list[dict[str, Any]] = []
    for path in arguments.files:
        started = time.perf_counter()
        before = engine.counters.passes
        pages = f"1-{arguments.max_pages}" if arguments.max_pages else None
        row: dict[str, Any] = {"document": path.name, "remark": ""}
        try:
            try:
                document = parse(path, engine=engine, threshold=arguments.threshold, pages=pages)
            except PasswordRequired:
                row["remark"] = "password asked for and given"
                document = parse(
                    path, engine=engine, threshold=arguments.threshold, pages=pages, password=arguments.password
                )
        except MinerUDiffusionError as error:
            if "page" in str(error) and pages is not None:
                document = parse(path, engine=engine, threshold=arguments.threshold, password=arguments.password)
            else:
                row["remark"] = str(error)
                rows.append(row)
                continue
        errors, total = measure(path, document, arguments.password)
        row |= {
            "pages": len(document.pages),
            "seconds": time.perf_counter() - started,
            "regions": sum(len(page.regions) for page in document.pages),
            "failed_pages": sum(bool(page.error) for page in document.pages),
            "batch_passes": engine.counters.passes - before,
            "characters": total,
            "cer": errors / total if total else None,
        }
        rows.append(row)
        cer = "" if row["cer"] is None else f"{row['cer']:.1%}"
        table.add_row(
            path.name[:44],
            str(row["pages"]),
            f"{row['seconds']:.1f}",
            str(row["regions"]),
            cer,
            str(total or ""),
            row["remark"],
        )
        print(path.name, row, flush=True)
    Console(width=150).print(table)
    measured = [row for row in rows if row.get("characters")]
    if measured:
        characters = sum(row["characters"] for row in measured)
        errors = sum(row["cer"] * row["characters"] for row in measured)
        print(f"CER over {characters} characters of prose in {len(measured)} documents: {errors / characters:.1%}")
    if arguments.out:
        arguments.out.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
