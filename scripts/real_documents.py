"""Run real documents through `parse`, and through RapidOCR beside it, and print a table: pages, seconds, regions, and
how both read against the PDF's own text layer.

    python scripts/real_documents.py FILE... [--password W] [--model FOLDER] [--threshold T] [--max-pages N]
                                             [--no-rapidocr] [--out FILE]

CER: character error rate over the regions of prose, region by region (the text layer inside the region's box), so it
measures reading, not layout; RapidOCR gets the same regions' pictures in the same run. A region counts if its text
layer is mostly ASCII prose, and no region counts for more errors than it has characters.
Words: share of the words of the pages' text layer that occur anywhere in what was read, and for an oracle that takes
the text layer's own text for every region: what the layout alone loses, with furniture and without pictures.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from rich.console import Console
from rich.table import Table

from mineru_diffusion import load_engine, parse
from mineru_diffusion.document.crops import crop_region
from mineru_diffusion.document.types import Document, Page
from mineru_diffusion.engine import LocalEngine
from mineru_diffusion.errors import MinerUDiffusionError, MissingExtra, PasswordRequired
from mineru_diffusion.evaluation.metrics import character_errors, page_edit_distance
from mineru_diffusion.evaluation.text_layer import TextLayer, word_recall
from mineru_diffusion.synthesis.charset import normalise

PROSE_KINDS = {"text", "title", "list", "ref_text", "image_caption", "table_caption"}
MIN_CHARS = 40
MARGIN = 6


class RapidReader:
    """RapidOCR with its packaged models, as it comes, on one thread.

    Raises:
        MissingExtra: it is not installed.
    """

    def __init__(self) -> None:
        try:
            from rapidocr import RapidOCR
        except ImportError as error:
            raise MissingExtra("reading with RapidOCR", "eval") from error
        threads = {f"EngineConfig.onnxruntime.{kind}_op_num_threads": 1 for kind in ("intra", "inter")}
        self._engine = RapidOCR(params={"Global.log_level": "error", **threads})
        self.seconds = 0.0

    def read(self, image: Image.Image) -> str:
        """Lines from top to bottom, each from left to right."""
        started = time.perf_counter()
        found = self._engine(np.asarray(image.convert("RGB"))[:, :, ::-1])
        self.seconds += time.perf_counter() - started
        if found.txts is None:
            return ""
        # Boxes whose middles lie within half a height of each other are on one line.
        boxes = sorted(
            (
                (box[:, 1].mean(), box[:, 0].min(), np.ptp(box[:, 1]), text)
                for box, text in zip(found.boxes, found.txts, strict=True)
            ),
            key=lambda item: item[0],
        )
        lines: list[list[tuple[float, str]]] = []
        last = -np.inf
        for middle, left, height, text in boxes:
            if middle - last > height / 2:
                lines.append([])
                last = middle
            lines[-1].append((left, text))
        return "\n".join(" ".join(text for _, text in sorted(line)) for line in lines)


@dataclass
class Measured:
    """Sums over the regions of prose of a document. Pairs are (read, true), page by page."""

    characters: int = 0
    errors: int = 0
    rapid_errors: int = 0
    pairs: list[list[tuple[str, str]]] = field(default_factory=list)

    def add_page(self, page: Page, image: Image.Image | None, layer: TextLayer, rapid: RapidReader | None) -> None:
        """Compare the prose of one page."""
        self.pairs.append([])
        for region in page.regions:
            truth = plain(layer.text_in(page.index, region.bbox))
            if region.kind not in PROSE_KINDS or not is_prose(truth):
                continue
            text = plain(region.content)
            self.characters += len(truth)
            self.errors += min(len(truth), character_errors(text, truth))
            self.pairs[-1].append((text, truth))
            if rapid is not None and image is not None:
                crop = crop_region(image, region.bbox, region.angle, margin=MARGIN, min_side=0)
                self.rapid_errors += min(len(truth), character_errors(plain(rapid.read(crop)), truth))

    def rate(self, errors: int) -> float | None:
        """Errors over characters."""
        return errors / self.characters if self.characters else None


def plain(text: str) -> str:
    """Look-alikes, white space and line-end hyphens in one form."""
    text = re.sub(r"(\w)-\n(\w)", r"\1\2", normalise(text))
    return re.sub(r"\s+", " ", text).strip()


def is_prose(text: str) -> bool:
    """Mostly ASCII letters and spaces: a text layer that can be trusted as English prose."""
    return len(text) >= MIN_CHARS and sum(c.isascii() and (c.isalpha() or c in " .,'-") for c in text) / len(text) > 0.9


def read_document(
    path: Path, engine: LocalEngine, arguments: argparse.Namespace, images: dict[int, Image.Image]
) -> tuple[Document, str]:
    """Parse, with the password only where one is asked for; keeps the page images.

    Returns:
        The document and a remark.
    """

    def keep(_: Path, page: Page, image: Image.Image) -> Page:
        images[page.index] = image
        return page

    options: dict[str, Any] = {"engine": engine, "threshold": arguments.threshold}
    if not arguments.no_rapidocr:
        options["on_page"] = keep
    if arguments.max_pages:
        options["pages"] = f"1-{page_limit(path, arguments)}"
    try:
        return parse(path, **options), ""
    except PasswordRequired:
        return parse(path, password=arguments.password, **options), "password asked for and given"


def page_limit(path: Path, arguments: argparse.Namespace) -> int:
    """At most `--max-pages`, and no more than the document has."""
    from mineru_diffusion.document.sources import open_source

    try:
        with open_source(path) as source:
            return min(arguments.max_pages, source.page_count)
    except PasswordRequired:
        with open_source(path, password=arguments.password) as source:
            return min(arguments.max_pages, source.page_count)


def measure(
    path: Path, document: Document, images: dict[int, Image.Image], password: str | None, rapid: RapidReader | None
) -> dict[str, Any]:
    """Figures of one document; empty where there is no text layer."""
    if path.suffix.lower() != ".pdf":
        return {}
    measured = Measured()
    with TextLayer(path, password) as layer:
        for page in document.pages:
            measured.add_page(page, images.get(page.index), layer, rapid)
        truth = "\n".join(layer.text_in(page.index) for page in document.pages)
        known = "\n".join(
            layer.text_in(page.index, region.bbox)
            for page in document.pages
            for region in page.regions
            if region.kind not in ("image", "chart")
        )
    rapid_cer = None if rapid is None else measured.rate(measured.rapid_errors)
    return {
        "characters": measured.characters,
        "cer": measured.rate(measured.errors),
        "rapidocr_cer": rapid_cer,
        "page_edit_distance": page_edit_distance(measured.pairs) if measured.characters else None,
        "words": word_recall([(all_text(document), truth)]),
        "oracle_words": word_recall([(known, truth)]),
    }


def all_text(document: Document) -> str:
    """What all regions say, furniture included, tables without their markup."""
    return "\n".join(re.sub(r"<[^<>]*>", " ", r.content) for page in document.pages for r in page.regions)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--password", help="tried where a document asks for one")
    parser.add_argument("--model", type=Path)
    parser.add_argument("--threshold", type=float)
    parser.add_argument("--max-pages", type=int, help="pages of each document at most")
    parser.add_argument("--no-rapidocr", action="store_true", help="our own reading only")
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    arguments = parser.parse_args()
    rapid = None if arguments.no_rapidocr else RapidReader()
    table = Table(
        "document", "pages", "seconds", "regions", "CER", "RapidOCR", "characters", "words", "oracle", "remark"
    )
    rows: list[dict[str, Any]] = []
    with load_engine(arguments.model) as engine:
        for path in arguments.files:
            row = one_row(path, engine, rapid, arguments)
            rows.append(row)
            print(json.dumps(row), flush=True)
            shares = [percent(row.get(key)) for key in ("cer", "rapidocr_cer", "words", "oracle_words")]
            numbers = [str(row.get(key, "")) for key in ("pages", "seconds", "regions", "characters")]
            table.add_row(path.name[:44], *numbers[:3], *shares[:2], numbers[3], *shares[2:], row["remark"])
    Console(width=160).print(table)
    measured = [row for row in rows if row.get("characters")]
    if measured:
        total = sum(row["characters"] for row in measured)
        print(f"{total} characters of prose in {len(measured)} documents")
        for key, name in (("cer", "CER"), ("rapidocr_cer", "CER of RapidOCR")):
            if all(row[key] is not None for row in measured):
                print(f"{name}: {sum(row[key] * row['characters'] for row in measured) / total:.1%}")
    if arguments.out:
        arguments.out.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


def one_row(
    path: Path, engine: LocalEngine, rapid: RapidReader | None, arguments: argparse.Namespace
) -> dict[str, Any]:
    """All figures of one document."""
    started, before = time.perf_counter(), engine.counters.passes
    images: dict[int, Image.Image] = {}
    try:
        document, remark = read_document(path, engine, arguments, images)
    except MinerUDiffusionError as error:
        return {"document": path.name, "remark": str(error)}
    seconds = time.perf_counter() - started
    rapid_before = rapid.seconds if rapid else 0.0
    row: dict[str, Any] = {
        "document": path.name,
        "remark": remark,
        "pages": len(document.pages),
        "seconds": round(seconds, 1),
        "regions": sum(len(page.regions) for page in document.pages),
        "failed_pages": sum(bool(page.error) for page in document.pages),
        "batch_passes": engine.counters.passes - before,
    }
    row |= measure(path, document, images, arguments.password, rapid)
    row["rapidocr_seconds"] = round(rapid.seconds - rapid_before, 1) if rapid else None
    return row


def percent(value: float | None) -> str:
    """A share for the table."""
    return "" if value is None else f"{value:.1%}"


if __name__ == "__main__":
    main()
