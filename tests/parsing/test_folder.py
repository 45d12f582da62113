"""Parsing into a folder: files, pictures, and taking up an earlier run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from parsing_fakes import FakeEngine, FixedDetector, draw_lines, save_pdf
from PIL import Image

from mineru_diffusion.document.pdf_source import PdfSource
from mineru_diffusion.document.source_types import PageImage
from mineru_diffusion.document.types import Region
from mineru_diffusion.errors import SourceError
from mineru_diffusion.parsing import ParseOptions, folder
from mineru_diffusion.parsing.folder import FileReport, parse_to_folder

REGIONS = (
    Region("text", (0.0, 0.0, 1.0, 0.4), source={"layout": "fixed"}),
    Region("image", (0.0, 0.4, 0.5, 1.0), source={"layout": "fixed"}),
    Region("table", (0.0, 0.0, 1.0, 0.4), source={"layout": "fixed"}),
)


@pytest.fixture(autouse=True)
def _fixed_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "choose_detector", lambda engine, params=None: FixedDetector(*REGIONS))


def page() -> Image.Image:
    image = Image.new("RGB", (900, 500), "white")
    image.paste(draw_lines(["some words", "more words"]), (0, 0))
    return image


class Loads:
    """Counts how often an engine was loaded."""

    def __init__(self) -> None:
        self.engines: list[FakeEngine] = []

    def __call__(self) -> FakeEngine:
        self.engines.append(FakeEngine())
        return self.engines[-1]


def parse(paths: list[Path], out: Path, load: Loads, **changes: object) -> list[FileReport]:
    options = ParseOptions(**{k: v for k, v in changes.items() if k in ("pages", "dpi")})  # type: ignore[arg-type]
    rest = {k: v for k, v in changes.items() if k not in ("pages", "dpi")}
    return list(parse_to_folder(paths, out, load, options, model="fake", **rest))  # type: ignore[arg-type]


def test_all_files_are_there_and_the_engine_is_closed(tmp_path: Path) -> None:
    load = Loads()
    (report,) = parse([save_pdf(tmp_path / "a.pdf", [page()])], tmp_path / "out", load, html=True, overlay=True)
    assert report.status == "ok"
    assert report.folder is not None
    names = {p.name for p in report.folder.iterdir()}
    assert {"a.md", "a.json", "a_content_list.json", "a.html", "a_layout.pdf", "images"} <= names
    assert load.engines[0].closed
    regions = json.loads((report.folder / "a.json").read_text())["pages"][0]["regions"]
    for region in regions[1:]:
        with Image.open(report.folder / region["image_path"]) as image:
            assert image.width > 400
    assert regions[0]["image_path"] == ""


def test_a_second_run_changes_nothing_and_loads_nothing(tmp_path: Path) -> None:
    path, out, load = save_pdf(tmp_path / "a.pdf", [page()]), tmp_path / "out", Loads()
    parse([path], out, load)
    (again,) = parse([path], out, load)
    assert again.status == "unchanged"
    assert len(load.engines) == 1
    (forced,) = parse([path], out, load, force=True)
    (other,) = parse([path], out, load, dpi=150)
    save_pdf(path, [page()] * 2)
    (changed,) = parse([path], out, load, dpi=150)
    assert [r.status for r in (forced, other, changed)] == ["ok"] * 3
    assert changed.pages == 2


def test_a_second_run_reads_only_the_failed_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, out, load = save_pdf(tmp_path / "a.pdf", [page()] * 3), tmp_path / "out", Loads()
    original = PdfSource.page

    def broken(self: PdfSource, index: int) -> PageImage:
        if index == 1:
            raise SourceError(self.path, "damaged", page=2)
        return original(self, index)

    with monkeypatch.context() as patch:
        patch.setattr(PdfSource, "page", broken)
        (first,) = parse([path], out, load)
    assert first.status == "partial"
    (second,) = parse([path], out, load)
    assert second.status == "ok"
    assert second.pages == 3
    assert second.counters.pages == 1
    assert second.warnings == ()
    assert parse([path], out, load)[0].status == "unchanged"


def test_a_document_without_a_readable_page_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: PdfSource, index: int) -> PageImage:
        raise SourceError(self.path, "damaged", page=index + 1)

    monkeypatch.setattr(PdfSource, "page", broken)
    (report,) = parse([save_pdf(tmp_path / "a.pdf", [page()])], tmp_path / "out", Loads())
    assert report.status == "failed"
