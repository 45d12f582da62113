"""Pages as people have them, through the packaged detector and a recogniser that tells which crop it saw."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from parsing_fakes import REGION_PROFILE, FakeEngine, FixedDetector, draw_lines, font
from PIL import Image, ImageDraw

from mineru_diffusion.document.types import Region
from mineru_diffusion.engine.types import CheckpointProfile, Request
from mineru_diffusion.parsing import ParseOptions, parse, parse_many
from mineru_diffusion.parsing.layout_rapid import RapidLayoutDetector
from mineru_diffusion.parsing.orientation import turn_back

#: Reads regions and has no layout task, so that the packaged detector is asked.
PROFILE = CheckpointProfile(tasks=("text", "table", "formula"), prompts=REGION_PROFILE.prompts)


@pytest.fixture(scope="module")
def detector() -> RapidLayoutDetector:
    return RapidLayoutDetector()


def shape(request: Request) -> str:
    """What can be told of a crop without reading it."""
    assert request.image is not None
    ink = np.asarray(request.image.convert("L")) < 128
    return f"{ink.shape[1]} x {ink.shape[0]}, {ink.mean():.2f}"


def table_image() -> Image.Image:
    image = Image.new("RGB", (1000, 1400), "white")
    draw = ImageDraw.Draw(image)
    for row in range(12):
        y = 200 + 50 * row
        draw.line((80, y, 920, y), fill=0, width=2)
        if row < 11:
            for column, word in enumerate(("plates", "angry hop", "quality")):
                draw.text((100 + 280 * column, y + 10), f"{word} {row}", fill=0, font=font(26))
    for x in (80, 360, 640, 920):
        draw.line((x, 200, x, 750), fill=0, width=2)
    draw.text((80, 120), "Table 1: what the people of happy valley grow", fill=0, font=font(28))
    draw.text((80, 800), "The people keep happy sheep and apply good paper.", fill=0, font=font(28))
    return image


@pytest.mark.parametrize("turn", [90, 180, 270])
def test_a_table_turned_any_way_is_read_as_the_upright_one_and_its_angle_is_told(tmp_path: Path, turn: int) -> None:
    image, box = table_image(), (0.05, 0.1, 0.95, 0.6)
    crops = {}
    for angle in (0, turn):
        path = tmp_path / f"{angle}.png"
        # PIL turns counter-clockwise; the content of the page is turned clockwise.
        image.rotate(-angle, expand=True).save(path)
        engine = FakeEngine(lambda r: "<fcel>plates<nl>", PROFILE)
        found = FixedDetector(Region("table", turn_back(box, angle), angle=angle))
        (region,) = parse(path, engine=engine, detector=found).pages[0].regions
        assert (region.angle, region.kind) == (angle, "table")
        assert "plates" in region.content
        crops[angle] = engine.requests[0].image
    assert crops[0] is not None
    assert crops[turn] is not None
    assert crops[turn].size == crops[0].size
    assert crops[turn].tobytes() == crops[0].tobytes()


def test_two_words_near_the_bottom_are_a_page(tmp_path: Path, detector: RapidLayoutDetector) -> None:
    image = Image.new("RGB", (1240, 1754), "white")
    ImageDraw.Draw(image).text((150, 1640), "Hello World", fill=0, font=font(32))
    image.save(tmp_path / "a.png")
    document = parse(tmp_path / "a.png", engine=FakeEngine(lambda r: "Hello World", PROFILE), detector=detector)
    assert [r.content for r in document.pages[0].regions] == ["Hello World"]


def test_the_detector_in_processes_finds_what_it_finds_here(tmp_path: Path) -> None:
    paths = [tmp_path / f"{i}.png" for i in range(2)]
    for i, path in enumerate(paths):
        draw_lines([f"some words {i}", "and some more"], width=900).save(path)
    documents = {
        jobs: [
            outcome.document
            for outcome in parse_many(
                paths,
                engine=FakeEngine(shape, PROFILE),
                detector=RapidLayoutDetector(),
                options=ParseOptions(jobs=jobs),
            )
        ]
        for jobs in (1, 2)
    }
    assert documents[1] == documents[2]
    assert all(document is not None and document.pages[0].regions for document in documents[1])


def test_a_copy_of_the_detector_keeps_its_settings() -> None:
    copy = pickle.loads(pickle.dumps(RapidLayoutDetector(least_score=0.6)))
    assert (copy._least_score, copy._threads) == (0.6, 1)
