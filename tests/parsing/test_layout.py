"""Layout: the packaged detector on drawn pages, the model's own layout, and the choice between them."""

from __future__ import annotations

import logging
import re

import numpy as np
import pytest
from parsing_fakes import LINE_PROFILE, REGION_PROFILE, FakeEngine, FixedDetector, add_noise, draw_lines, font
from PIL import Image, ImageDraw

from mineru_diffusion.document.types import Region
from mineru_diffusion.engine.types import DecodingParams, Request, Result
from mineru_diffusion.parsing.layout import ModelLayoutDetector, RapidLayoutDetector, choose_detector
from mineru_diffusion.parsing.layout_rapid import page_ink
from mineru_diffusion.parsing.orientation import content_angle, turn_back

PROSE = re.findall(r"\w+", "The lighthouse was built in three summers because in winter nobody could land a boat there")


def prose_page(width: int = 850, height: int = 1100) -> Image.Image:
    """A page with a heading and two paragraphs."""
    page = Image.new("RGB", (width, height), "white")
    draw = ImageDraw.Draw(page)
    draw.text((80, 90), "Keeping the Light", fill=(0, 0, 0), font=font(30))
    y = 170
    for count in (9, 12):
        for row in range(count):
            words = [PROSE[(row * 5 + i) % len(PROSE)] for i in range(13)]
            draw.text((80, y), " ".join(words)[:84], fill=(0, 0, 0), font=font(16))
            y += 22
        y += 30
    return page


@pytest.fixture(scope="module")
def detector() -> RapidLayoutDetector:
    return RapidLayoutDetector()


def covered(page: Image.Image, regions: tuple[Region, ...]) -> float:
    """Part of the page's ink that lies in some region."""
    ink = page_ink(page)
    rest = ink.copy()
    height, width = ink.shape
    for r in regions:
        x0, y0, x1, y1 = r.bbox
        rest[int(y0 * height) : int(np.ceil(y1 * height)), int(x0 * width) : int(np.ceil(x1 * width))] = False
    return 1 - np.count_nonzero(rest) / max(1, np.count_nonzero(ink))


@pytest.mark.parametrize("sigma", [0, 3, 8])
def test_blank_pages_have_no_regions(detector: RapidLayoutDetector, sigma: float) -> None:
    page = Image.new("RGB", (850, 1100), "white")
    (layout,) = detector.detect([add_noise(page, sigma) if sigma else page])
    assert layout.regions == ()


def test_hello_world_near_the_bottom_is_kept(detector: RapidLayoutDetector) -> None:
    page = Image.new("RGB", (850, 1100), "white")
    ImageDraw.Draw(page).text((120, 1020), "Hello World", fill=(0, 0, 0), font=font(18))
    (layout,) = detector.detect([page])
    assert len(layout.regions) == 1
    assert layout.regions[0].bbox[1] > 0.9
    assert covered(page, layout.regions) == 1.0


def test_all_ink_of_a_page_of_prose_is_covered_once(detector: RapidLayoutDetector) -> None:
    page = prose_page()
    (layout,) = detector.detect([page])
    assert covered(page, layout.regions) > 0.999
    assert [r.order for r in layout.regions] == list(range(len(layout.regions)))
    assert [r.bbox[1] for r in layout.regions] == sorted(r.bbox[1] for r in layout.regions)
    for r in layout.regions:
        assert r.source["layout"] in ("rapid-layout", "ink")
        assert bool(r.warnings) == (r.source["layout"] == "ink")
        assert 0 <= r.bbox[0] < r.bbox[2] <= 1


def test_very_tall_pages_are_taken_in_parts(detector: RapidLayoutDetector) -> None:
    page = Image.new("RGB", (600, 4200), "white")
    for i in range(7):
        page.paste(draw_lines([" ".join(PROSE[:6])] * 6, width=600, size=18, pitch=26), (0, 60 + i * 590))
    (layout,) = detector.detect([page])
    assert covered(page, layout.regions) > 0.999
    assert len(layout.regions) >= 7


@pytest.mark.parametrize("angle", [90, 180, 270])
def test_turned_pages_are_read_upright(detector: RapidLayoutDetector, angle: int) -> None:
    upright = prose_page()
    turned = upright.rotate(-angle, expand=True)
    (layout,) = detector.detect([turned])
    (expected,) = detector.detect([upright])
    assert {r.angle for r in layout.regions} == {angle}
    assert "turned" in layout.warnings[0]
    assert covered(turned, layout.regions) > 0.99
    assert len(layout.regions) == len(expected.regions)
    for a, b in zip(layout.regions, expected.regions, strict=True):
        assert a.kind == b.kind
        assert a.bbox == pytest.approx(turn_back(b.bbox, angle), abs=0.02)


def test_the_angle_of_a_page_that_does_not_tell_is_0() -> None:
    noise = np.random.default_rng(0).random((800, 600)) < 0.1
    assert content_angle(noise) == 0
    assert content_angle(np.zeros((100, 100), dtype=bool)) == 0


def test_turn_back_agrees_with_turning_the_picture() -> None:
    page = Image.new("L", (100, 200), 0)
    page.paste(255, (10, 20, 40, 90))
    for angle in (0, 90, 180, 270):
        turned = page.rotate(-angle, expand=True)
        x0, y0, x1, y1 = turn_back((0.1, 0.1, 0.4, 0.45), angle)
        box = turned.getbbox()
        assert box == pytest.approx((x0 * turned.width, y0 * turned.height, x1 * turned.width, y1 * turned.height))


def test_the_packaged_detector_is_quiet(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
    with caplog.at_level(logging.DEBUG):
        RapidLayoutDetector().detect([prose_page()])
    out, err = capfd.readouterr()
    assert out == ""
    assert "RapidLayout" not in err
    assert "INFO" not in err


def test_the_choice_follows_from_the_tasks() -> None:
    assert isinstance(choose_detector(FakeEngine(profile=LINE_PROFILE)), RapidLayoutDetector)
    engine = FakeEngine(lambda request: GOOD, REGION_PROFILE)
    chosen = choose_detector(engine, DecodingParams(threshold=0.7, max_tokens=9))
    assert isinstance(chosen, ModelLayoutDetector)
    chosen.detect([prose_page()])
    # A limit for regions must not cut the layout.
    assert (engine.requests[0].params.threshold, engine.requests[0].params.max_tokens) == (0.7, None)


GOOD = (
    "<|box_start|>100 100 900 150<|box_end|><|ref_start|>title<|ref_end|><|rotate_up|>\n"
    "<|box_start|>100 200 900 500<|box_end|><|ref_start|>text<|ref_end|><|rotate_right|>"
)


def test_the_models_own_layout_is_asked_for_squashed_pages_together() -> None:
    engine = FakeEngine(lambda request: GOOD, REGION_PROFILE)
    model = ModelLayoutDetector(engine, FixedDetector())
    blank = Image.new("RGB", (400, 400), "white")
    layouts = model.detect([prose_page(), blank, prose_page(600, 1100)])
    assert [r.task for r in engine.requests] == ["layout", "layout"]
    assert all(r.image is not None and r.image.size == (1036, 1036) for r in engine.requests)
    assert layouts[1].regions == ()
    first = layouts[0].regions
    assert [(r.kind, r.angle, r.order) for r in first] == [("title", 0, 0), ("text", 90, 1)]
    assert first[0].bbox == pytest.approx((0.1, 0.1, 0.9, 0.15))
    assert first[0].source == {"layout": "model"}


@pytest.mark.parametrize("answer", ["", "no boxes here", Result("", finish_reason="error", error="too large")])
def test_pages_without_a_usable_answer_go_to_the_fallback(answer: str | Result) -> None:
    def reply(request: Request) -> str | Result:
        return answer

    region = Region("text", (0, 0, 1, 1), source={"layout": "fixed"})
    model = ModelLayoutDetector(FakeEngine(reply, REGION_PROFILE), FixedDetector(region))
    (layout,) = model.detect([prose_page()])
    assert layout.regions == (region,)
    assert "layout by fixed" in layout.warnings[0]


def test_a_layout_that_broke_off_is_completed_from_the_ink() -> None:
    cut = Result(GOOD.splitlines()[0], finish_reason="length")
    model = ModelLayoutDetector(FakeEngine(lambda request: cut, REGION_PROFILE), FixedDetector())
    page = prose_page()
    (layout,) = model.detect([page])
    assert len(layout.regions) > 1
    assert any("broke off" in w for w in layout.warnings)
    assert covered(page, layout.regions) > 0.99
