"""From a file to a replay with real (if ignorant) networks, without a browser."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from mineru_diffusion.demo.downloads import KINDS, make_file
from mineru_diffusion.demo.errors import Refused
from mineru_diffusion.demo.page_view import first_choice, page_html, region_choices
from mineru_diffusion.demo.pages import open_document, read_page
from mineru_diffusion.demo.readers import ONE_BY_ONE, Readers
from mineru_diffusion.demo.sessions import Session, Sessions
from mineru_diffusion.demo.settings import DemoSettings
from mineru_diffusion.demo.trials import SLOWEST, TEXT_LAYER, reference_text, try_threshold
from mineru_diffusion.errors import PasswordRequired, SourceError, UsageError
from tests.demo.demo_world import MAX_TOKENS, TwoRegions, engine, readers, save_image, save_pdf

SETTINGS = DemoSettings(dpi=100, max_pages=2)


@pytest.fixture(scope="module")
def both() -> Iterator[Readers]:
    made = readers()
    yield made
    made.close()


@pytest.fixture(scope="module")
def pdf(both: Readers, tmp_path_factory: pytest.TempPathFactory) -> Session:
    folder = tmp_path_factory.mktemp("pdf")
    session = Sessions(folder / "s", SETTINGS).open(save_pdf(folder / "two pages.pdf", pages=3), "two pages.pdf")
    open_document(session, SETTINGS)
    read_page(session, 0, both, SETTINGS)
    return session


def test_pages_are_limited_and_that_is_said(pdf: Session, both: Readers) -> None:
    assert pdf.page_count == 2
    assert "only the first 2 of 3" in pdf.notes[-1]
    with pytest.raises(Refused, match="pages 1 to 2"):
        read_page(pdf, 2, both, SETTINGS)


def test_a_page_is_read_once(pdf: Session, both: Readers) -> None:
    passes = both.engine.counters.passes
    assert read_page(pdf, 0, both, SETTINGS) is pdf.pages[0]
    assert both.engine.counters.passes == passes


def test_the_page_shows_its_regions_and_names_no_folder(pdf: Session) -> None:
    html = page_html(pdf, 0)
    assert html.count("data-region=") == len(region_choices(pdf, 0)) == 2
    assert str(pdf.folder) not in html
    assert first_choice(pdf, 0) in {key for _, key in region_choices(pdf, 0)}


def test_both_sides_are_measured_on_the_same_crops(pdf: Session, both: Readers) -> None:
    plan = pdf.pages[0].plans[1]
    data = both.replay(plan, both.race(plan, 0.5, 2))
    mine, other = data["runs"]
    assert (mine["block"], other["block"]) == (8, 1)
    assert [len(row) for row in mine["lines"]] == [len(row) for row in other["lines"]]
    for run in (mine, other):
        assert run["tokens"] > 0
        assert 0 < run["moments"][0] <= run["moments"][-1] <= run["seconds"]
        assert run["passes"] >= len(run["moments"])
        for sequence in (s for row in run["lines"] for s in row):
            assert sequence["time"] == sorted(sequence["time"])
            assert len(sequence["tokens"]) == len(sequence["confidence"]) == len(sequence["step"]) <= MAX_TOKENS
    steps = [s["step"] for row in other["lines"] for s in row]
    assert all(step == sorted(set(step)) for step in steps), "one token a step, from left to right"
    assert "Measured" in data["note"]


def test_without_a_twin_the_stand_in_is_named(pdf: Session) -> None:
    alone = readers(twin=False)
    plan = pdf.pages[0].plans[0]
    data = alone.replay(plan, alone.race(plan, 0.5, 1))
    assert data["runs"][1]["name"] == "One token a step"
    assert "not an autoregressive model" in data["note"]
    for sequence in (s for row in data["runs"][1]["lines"] for s in row):
        assert len(set(sequence["step"])) == len(sequence["step"])
    alone.close()


def test_checkpoints_in_each_others_place_are_refused() -> None:
    with pytest.raises(UsageError, match="diffusion checkpoint"):
        Readers(engine("autoregressive"), None, TwoRegions())
    with pytest.raises(UsageError, match="autoregressive"):
        Readers(engine(), engine(), TwoRegions())


def test_the_reference_is_the_text_layer_where_there_is_one(pdf: Session, both: Readers) -> None:
    plans = [pdf.pages[0].plans[1]]
    reference, what = reference_text(pdf, "r", plans, both)
    assert what == TEXT_LAYER
    assert reference.strip() == "Some words on one line"


def test_lower_thresholds_take_fewer_steps(pdf: Session, both: Readers) -> None:
    plans = list(pdf.pages[0].plans.values())
    low, _ = try_threshold(pdf, "page", plans, both, 0.05, "x")
    high, _ = try_threshold(pdf, "page", plans, both, 1.0, "x")
    assert low.tokens_per_step > high.tokens_per_step == 1.0
    assert set(pdf.trials["page"]) == {0.05, 1.0}


def test_a_picture_is_held_against_its_slowest_reading(tmp_path: Path, both: Readers) -> None:
    session = Sessions(tmp_path / "s", SETTINGS).open(save_image(tmp_path / "a.png"), "a.png")
    open_document(session, SETTINGS)
    plans = list(read_page(session, 0, both, SETTINGS).plans.values())
    reference, what = reference_text(session, "page", plans, both)
    assert what == SLOWEST
    assert reference == "\n".join(both.reread(plans, ONE_BY_ONE)[1])
    trial, text = try_threshold(session, "page", plans, both, 1.0, reference)
    assert text == reference
    assert trial.accuracy == 1.0


def test_downloads_hold_the_document_and_name_no_folder(pdf: Session) -> None:
    files = {kind: make_file(pdf, kind, SETTINGS) for kind in KINDS}
    data = json.loads(files["json"])
    assert data["source"] == "two pages.pdf"
    assert len(data["pages"][0]["regions"]) == 2
    assert files["pdf"].startswith(b"%PDF")
    assert b"<html>" in files["html"]
    with zipfile.ZipFile(io.BytesIO(files["zip"])) as archive:
        assert {Path(name).suffix for name in archive.namelist()} >= {".md", ".json", ".html", ".pdf"}
        assert archive.testzip() is None
    for content in files.values():
        assert str(pdf.folder).encode() not in content
    with pytest.raises(Refused, match="docx"):
        make_file(pdf, "docx", SETTINGS)


def test_bad_files_say_what_is_wrong(tmp_path: Path) -> None:
    sessions = Sessions(tmp_path / "s", SETTINGS)
    locked = sessions.open(save_pdf(tmp_path / "locked.pdf", password="sesame"), "locked.pdf")
    with pytest.raises(PasswordRequired):
        open_document(locked, SETTINGS)
    locked.password = "sesame"
    open_document(locked, SETTINGS)
    assert locked.page_count == 2
    broken = tmp_path / "broken.pdf"
    broken.write_bytes(b"%PDF-1.7 and nothing more")
    with pytest.raises(SourceError):
        open_document(sessions.open(broken, "broken.pdf"), SETTINGS)
    large = sessions.open(save_image(tmp_path / "large.png"), "large.png")
    with pytest.raises(Refused, match="the limit"):
        open_document(large, DemoSettings(max_upload_bytes=100))
    with pytest.raises(SourceError):
        open_document(large, DemoSettings(max_image_pixels=100))
