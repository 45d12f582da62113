"""Parsing into a folder: files, pictures, and taking up an earlier run."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from numbered_pages import NumberLayout, NumberReader, number_pdf
from parsing_fakes import FakeEngine, FixedDetector, draw_lines, save_pdf
from PIL import Image

from mineru_diffusion.document.pdf_source import PdfSource
from mineru_diffusion.document.source_types import PageImage
from mineru_diffusion.document.types import Region
from mineru_diffusion.engine.types import Request, Result
from mineru_diffusion.errors import EngineError, OutputError, SourceError
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
    (report,) = parse([save_pdf(tmp_path / "a.pdf", [page()])], tmp_path / "out", load, formats=["html", "layout"])
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


Run = Callable[..., list[FileReport]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`run(paths, engine=..., out=..., ...)` parses numbered pages."""
    monkeypatch.setattr(folder, "choose_detector", lambda engine, params=None: NumberLayout())

    def parse_numbers(
        paths: list[Path], engine: FakeEngine | None = None, out: str = "out", **rest: object
    ) -> list[FileReport]:
        used = engine or NumberReader()
        options = ParseOptions(dpi=72, window=rest.pop("window", 4))  # type: ignore[arg-type]
        return list(parse_to_folder(paths, tmp_path / out, lambda: used, options, model="fake", **rest))  # type: ignore[arg-type]

    return parse_numbers


def numbered(folder: Path, *names: str, pages: int = 3) -> list[Path]:
    paths = []
    for i, name in enumerate(names):
        paths.append(folder / name)
        paths[-1].parent.mkdir(parents=True, exist_ok=True)
        paths[-1].write_bytes(number_pdf([100 * i + page for page in range(pages)]))
    return paths


def tree(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


class Flaky(NumberReader):
    """Fails the requests with these numbers, counted from 0."""

    def __init__(self, *bad: int) -> None:
        super().__init__()
        self.bad = set(bad)
        self.asked = 0

    def _read(self, request: Request) -> Result:
        self.asked += 1
        if self.asked - 1 in self.bad:
            return Result("", finish_reason="error", error="no answer after 3 tries")
        return super()._read(request)


def test_one_crop_without_an_answer_costs_its_region_only_and_is_asked_for_again(run: Run, tmp_path: Path) -> None:
    paths = numbered(tmp_path / "in", "a.pdf", pages=20)
    run(paths, out="calm")
    (first,) = run(paths, Flaky(7))
    assert first.status == "partial"
    assert len(first.failed_pages) == 1
    document = json.loads((tmp_path / "out/a/a.json").read_text())
    reasons = [r["finish_reason"] for p in document["pages"] for r in p["regions"] if r["kind"] == "text"]
    assert sorted(reasons) == ["error"] + ["stop"] * 19
    assert any("no answer after 3 tries" in w for p in document["pages"] for r in p["regions"] for w in r["warnings"])
    second_engine = Flaky()
    (second,) = run(paths, second_engine)
    assert (second.status, second_engine.asked, second.counters.pages) == ("ok", 1, 1)
    assert tree(tmp_path / "out") == tree(tmp_path / "calm")
    assert run(paths)[0].status == "unchanged"


def test_two_runs_write_the_same_bytes_whatever_was_ready_when(run: Run, tmp_path: Path) -> None:
    paths = numbered(tmp_path / "in", "a.pdf", "b.pdf", "c.pdf", pages=5)
    formats = ["html", "layout"]
    run(paths, out="one", formats=formats)
    run(paths, NumberReader(seconds=0.01), out="two", formats=formats)
    assert tree(tmp_path / "one") == tree(tmp_path / "two")


class Company(NumberReader):
    """Reads as floating-point numbers do: a crop's last digits and passes depend on what was read before it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def _read(self, request: Request) -> Result:
        self.asked += 1
        result = super()._read(request)
        confidences = tuple(0.9123 + 1e-8 * self.asked for _ in result.tokens)
        return replace(result, confidences=confidences, nfe=result.nfe + self.asked)


def test_what_was_read_beside_a_page_does_not_show(run: Run, tmp_path: Path) -> None:
    paths = numbered(tmp_path / "in", "a.pdf", "b.pdf", pages=4)
    run(paths, Company(), out="calm")
    engine = Company()
    run(paths, engine, stop=lambda: engine.asked >= 2)
    (report, *_) = [r for r in run(paths, Company()) if r.status == "ok"]
    assert report.counters.passes > 0
    assert tree(tmp_path / "out") == tree(tmp_path / "calm")
    regions = json.loads((tmp_path / "out/a/a.json").read_text())["pages"][0]["regions"]
    assert [r["confidence"] for r in regions if r["kind"] == "text"] == [0.9123]


def test_files_of_another_reading_do_not_stay_beside_the_new_ones(run: Run, tmp_path: Path) -> None:
    (path,) = numbered(tmp_path / "in", "a.pdf")
    written = tmp_path / "out" / "a"
    run([path], formats=["html", "layout"])
    (written / "mine.html").write_text("mine")
    run([path])
    # They show the same reading.
    assert {"a.html", "a_layout.pdf"} <= {p.name for p in written.iterdir()}
    path.write_bytes(number_pdf([9, 8, 7]))
    run([path], formats=["layout"])
    names = {p.name for p in written.iterdir()}
    assert "a.html" not in names
    assert {"a.md", "a.json", "a_content_list.json", "a_layout.pdf", "mine.html"} <= names


@pytest.mark.parametrize("answers", [1, 4, 9])
def test_a_run_that_was_stopped_goes_on_where_it_was(run: Run, tmp_path: Path, answers: int) -> None:
    paths = numbered(tmp_path / "in", "a.pdf", "b.pdf", "c.pdf", pages=4)
    run(paths, out="calm")
    engine = Flaky()
    reports = run(paths, engine, stop=lambda: engine.asked >= answers)
    assert reports[-1].status == "interrupted" or len(reports) < 3
    # No more than what was in flight when the run was asked to stop.
    assert answers <= engine.asked <= answers + 4
    for report in reports:
        assert report.folder is not None
        assert (report.folder / ".manifest.json").exists() == (report.status == "ok")
    later = Flaky()
    run(paths, later)
    assert later.asked == 12 - engine.asked
    assert tree(tmp_path / "out") == tree(tmp_path / "calm")


def test_an_engine_that_stays_broken_ends_the_run_and_what_was_read_is_kept(run: Run, tmp_path: Path) -> None:
    class Breaking(Flaky):
        def stream(self):  # type: ignore[no-untyped-def]
            if self.asked >= 5:
                raise EngineError("the device is gone")
            for answer in super().stream():
                yield answer
                if self.asked >= 5:
                    raise EngineError("the device is gone")

    paths = numbered(tmp_path / "in", "a.pdf", "b.pdf", "c.pdf", "d.pdf", pages=4)
    with pytest.raises(EngineError, match="3 times in a row"):
        run(paths, Breaking())
    later = Flaky()
    reports = run(paths, later)
    assert {report.status for report in reports} <= {"ok", "unchanged"}
    assert later.asked == 16 - 5


def test_formats_that_are_missing_are_written_without_reading_again(run: Run, tmp_path: Path) -> None:
    paths = numbered(tmp_path / "in", "a.pdf")
    run(paths)
    written = tmp_path / "out" / "a"
    (written / "a.md").unlink()
    engine = Flaky()
    assert run(paths, engine, formats=["html", "layout"])[0].status == "unchanged"
    assert engine.asked == 0
    assert {"a.md", "a.html", "a_layout.pdf"} <= {p.name for p in written.iterdir()}
    # Pictures can only be had by rendering the pages again.
    next((written / "images").iterdir()).unlink()
    assert run(paths, engine)[0].status == "ok"
    assert engine.asked == 3


def test_the_content_counts_and_not_the_date(run: Run, tmp_path: Path) -> None:
    (path,) = numbered(tmp_path / "in", "a.pdf")
    run([path])
    os.utime(path, (1, 1))
    assert run([path])[0].status == "unchanged"
    stat = path.stat()
    path.write_bytes(number_pdf([9, 8, 7]))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert run([path])[0].status == "ok"
    assert "number 9" in (tmp_path / "out/a/a.md").read_text()


def test_a_bad_file_leaves_no_folder_and_is_tried_again(run: Run, tmp_path: Path) -> None:
    good, bad = numbered(tmp_path / "in", "a.pdf", "b.pdf")
    whole = bad.read_bytes()
    bad.write_bytes(whole[:500])
    assert [r.status for r in run([bad, good])] == ["failed", "ok"]
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["a"]
    bad.write_bytes(whole)
    assert [r.status for r in run([bad, good])] == ["unchanged", "ok"]


def test_two_files_of_one_name_in_one_run(run: Run, tmp_path: Path) -> None:
    paths = numbered(tmp_path, "a/report.pdf", "b/report.pdf", "c/Report.pdf", "d/" + "\u8868" * 80 + ".pdf")
    reports = run(paths)
    folders = [report.folder for report in reports if report.folder is not None]
    assert len({str(f).lower() for f in folders}) == 4
    for i, written in enumerate(folders):
        assert f"number {100 * i}\n" in next(written.glob("*.md")).read_text()
    assert [report.folder for report in run(paths[::-1])] == folders[::-1]


def test_an_exporter_that_breaks_costs_its_document_only(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mineru_diffusion.document import exports

    original = exports.document_to_markdown

    def breaks(document, options=None):  # type: ignore[no-untyped-def]
        if "a.pdf" in document.source:
            raise KeyError("lost")
        return original(document, options)

    paths = numbered(tmp_path / "in", "a.pdf", "b.pdf")
    with monkeypatch.context() as patch:
        patch.setattr(exports, "document_to_markdown", breaks)
        reports = run(paths)
    assert [report.status for report in reports] == ["failed", "ok"]
    assert "a.pdf: its output cannot be made: KeyError: 'lost' (report it" in str(reports[0].error)
    # What was read was kept, so that nothing is read twice once the fault is mended.
    engine = Flaky()
    assert [report.status for report in run(paths, engine)] == ["unchanged", "ok"]
    assert engine.asked == 0


def test_a_full_disk_ends_the_run(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OutputError, match="make room"):
        run(numbered(tmp_path / "in", "a.pdf", "b.pdf"))
    assert not (tmp_path / "out" / ".staging").exists()


def test_headings_of_a_document_read_in_two_runs_have_the_levels_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    title = Region("title", (0.0, 0.0, 1.0, 0.4), source={"layout": "fixed"})
    monkeypatch.setattr(folder, "choose_detector", lambda engine, params=None: FixedDetector(title))
    pages = []
    for size in (48, 30, 20):
        pages.append(Image.new("RGB", (900, 500), "white"))
        pages[-1].paste(draw_lines(["Some Title"], size=size, pitch=60), (0, 0))
    path, load = save_pdf(tmp_path / "a.pdf", pages), Loads()
    parse([path], tmp_path / "calm", load)
    answered = 0

    def count(request: Request) -> str:
        nonlocal answered
        answered += 1
        return "text"

    stopped = list(
        parse_to_folder(
            [path], tmp_path / "out", lambda: FakeEngine(count), ParseOptions(window=1), model="fake",
            stop=lambda: answered > 0,
        )
    )  # fmt: skip
    assert [report.status for report in stopped] == ["interrupted"]
    parse([path], tmp_path / "out", load)
    assert (tmp_path / "out/a/a.json").read_bytes() == (tmp_path / "calm/a/a.json").read_bytes()
