"""The packaged checkpoint on the example document, as a user runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pypdfium2 as pdfium
import pytest

from mineru_diffusion import Document, load_engine, parse
from mineru_diffusion.assets import packaged_checkpoint
from mineru_diffusion.engine import LocalEngine

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture(scope="module")
def engine() -> LocalEngine:
    return load_engine()


@pytest.fixture(scope="module")
def document(engine: LocalEngine) -> Document:
    return parse(EXAMPLES / "report.pdf", engine=engine)


def words(text: str) -> list[str]:
    return "".join(c.lower() if c.isalnum() else " " for c in text).split()


def test_both_pages_are_read_in_order(document: Document) -> None:
    assert [page.index for page in document.pages] == [0, 1]
    assert not any(page.error for page in document.pages)
    kinds = [region.kind for page in document.pages for region in page.regions]
    assert kinds[0] == "title"
    assert {"text", "title", "image"} <= set(kinds)
    assert all(r.finish_reason in ("stop", "") for page in document.pages for r in page.regions if r.kind == "title")


def test_much_of_the_text_is_read(document: Document) -> None:
    """A floor that catches a broken pipeline, not a score: a quarter of the distinct words of the text layer."""
    pdf = pdfium.PdfDocument(EXAMPLES / "report.pdf")
    truth = {w for i in range(len(pdf)) for w in words(pdf[i].get_textpage().get_text_range()) if len(w) > 3}
    read = set(words(document.to_markdown()))
    assert len(truth & read) / len(truth) > 0.25


def test_confidence_comes_with_every_text_region(document: Document) -> None:
    regions = [r for page in document.pages for r in page.regions if r.kind == "text"]
    assert regions
    assert all(r.confidence is not None and 0 < r.confidence <= 1 for r in regions)


def test_no_special_token_reaches_the_text(document: Document) -> None:
    markdown = document.to_markdown()
    assert "<|" not in markdown
    assert "MASK" not in markdown


def test_the_same_again(engine: LocalEngine, document: Document) -> None:
    again = parse(EXAMPLES / "report.pdf", engine=engine, pages="1")
    assert [r.content for r in again.pages[0].regions] == [r.content for r in document.pages[0].regions]


def test_an_image_is_a_document_too(engine: LocalEngine) -> None:
    document = parse(EXAMPLES / "scan.png", engine=engine)
    assert len(document.pages) == 1
    assert len(words(document.to_markdown())) > 50


def test_the_packaged_checkpoint_is_small_and_declares_itself() -> None:
    folder = packaged_checkpoint()
    size = sum(file.stat().st_size for file in folder.iterdir())
    assert size < 30e6
    section = json.loads((folder / "generation_config.json").read_text())["mineru_diffusion"]
    assert section["text_unit"] == "line"
    assert section["tasks"] == ["text"]


@pytest.mark.slow
def test_the_command(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "mineru_diffusion.cli"]
    command = [*program, "parse", str(EXAMPLES / "report.pdf"), "-o", str(tmp_path), "--format", "md,json,html"]
    done = subprocess.run(
        [*command, "--format", "md,json,html", "--debug"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    written = {file.name for file in (tmp_path / "report").iterdir()}
    assert {"report.md", "report.json", "report_content_list.json", "report.html", "images"} <= written
    assert "1 ok" in done.stderr + done.stdout
