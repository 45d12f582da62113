"""The demo in a real browser, headless: everything that a visitor does, with the keyboard where that must work."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

pytest.importorskip("gradio", reason="the demo needs gradio: pip install 'mineru-diffusion[demo]'")
playwright = pytest.importorskip("playwright.sync_api", reason="driving a browser needs playwright (extra dev)")

from mineru_diffusion.demo.settings import DemoSettings  # noqa: E402
from tests.demo.demo_world import save_image, save_pdf, serving  # noqa: E402

CHROMIUM = next((found for name in ("chromium", "chromium-browser") if (found := shutil.which(name))), None)
PATIENCE = 240_000
"""Milliseconds; machines may be busy, and no time is asserted."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine (Debian: apt-get install chromium)"),
]


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_pdf(tmp_path_factory.mktemp("example") / "sample.pdf")


@pytest.fixture(scope="module")
def address(example: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    settings = DemoSettings(dpi=100, rounds=1, max_upload_bytes=200_000, examples=(example,))
    with serving(settings, tmp_path_factory.mktemp("demo")) as url:
        yield url


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(chromium: Any, address: str) -> Iterator[Any]:
    context = chromium.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.asked = []
    page.broken = []
    page.on("request", lambda request: page.asked.append(request.url))
    page.on("pageerror", lambda error: page.broken.append(str(error)))
    page.goto(address)
    page.wait_for_selector("#md-view .md-empty")
    yield page
    assert page.broken == []
    context.close()


@pytest.fixture
def opened(page: Any) -> Any:
    """The example, read, and its first region's replay."""
    page.click("#md-example-sample")
    page.wait_for_selector("denoising-replay .dr-side")
    return page


def upload(page: Any, path: Path) -> None:
    page.set_input_files("#md-upload input[type=file]", str(path))


def state(page: Any) -> dict[str, Any]:
    return dict(
        page.evaluate(
            """() => {
              const replay = document.querySelector("denoising-replay");
              return {
                now: replay.now, end: replay.end, playing: replay.playing, moments: replay.moments.length,
                speedUp: replay.data.speed_up, runs: replay.data.runs.map((run) => [run.name, run.tokens]),
                done: replay.sides.map((side) => side.element.querySelectorAll(".dr-done").length),
                masked: replay.sides.map((side) => side.element.querySelectorAll(".dr-mask").length),
              };
            }"""
        )
    )


def test_an_upload_is_read_and_its_regions_can_be_picked(page: Any, tmp_path: Path) -> None:
    upload(page, save_image(tmp_path / "my page.png"))
    page.wait_for_selector("#md-view .md-page")
    assert page.locator("#md-view button[data-region]").count() == 2
    assert "my page.png" in page.inner_text("#md-status")
    page.wait_for_selector("denoising-replay .dr-side")
    before = page.input_value("#md-region input")
    data = page.get_attribute("denoising-replay", "data-replay")
    # By keyboard: focus the region that is not shown, and press Enter.
    page.locator('#md-view button[aria-pressed="false"]').first.focus()
    page.keyboard.press("Enter")
    page.wait_for_function("before => document.querySelector('#md-region input').value !== before", arg=before)
    page.wait_for_function("before => document.querySelector('denoising-replay').dataset.replay !== before", arg=data)
    page.wait_for_function(
        "(({shown, dataset}) => shown === dataset.replay)(document.querySelector('denoising-replay'))"
    )
    assert page.locator("denoising-replay .dr-side").count() == 2
    assert page.locator('#md-view button[aria-pressed="true"]').count() == 1


def test_the_page_asks_nobody_else(opened: Any, address: str) -> None:
    hosts = {urlsplit(url).netloc for url in opened.asked if url.startswith(("http", "ws"))}
    assert hosts == {urlsplit(address).netloc}


def test_the_replay_plays_pauses_and_steps(opened: Any) -> None:
    opened.select_option(".dr-speed", "0.002")
    opened.evaluate("document.querySelector('denoising-replay').pause()")
    opened.evaluate("document.querySelector('denoising-replay').seek(0)")
    start = state(opened)
    assert start["done"] == [0, 0]
    assert start["masked"][0] > start["masked"][1] > 0, "a block of masks against one position"
    opened.click(".dr-play")
    opened.wait_for_function("document.querySelector('denoising-replay').now > 0")
    assert state(opened)["playing"]
    opened.click(".dr-play")
    paused = state(opened)
    opened.wait_for_timeout(300)
    assert state(opened)["now"] == paused["now"]
    assert not paused["playing"]
    # The slider, by keyboard: one moment on, then to the end.
    opened.evaluate("document.querySelector('denoising-replay').seek(0)")
    opened.focus(".dr-slider")
    opened.keyboard.press("ArrowRight")
    first = state(opened)
    assert 0 < first["now"] < first["end"]
    opened.keyboard.press("End")
    last = state(opened)
    assert last["now"] == last["end"]
    assert last["done"] == [tokens for _, tokens in last["runs"]]
    assert last["masked"] == [0, 0]
    opened.keyboard.press("Home")
    assert state(opened)["done"] == [0, 0]
    opened.click('[aria-label="one step on"]')
    assert state(opened)["now"] == first["now"]


def test_it_is_compared_with_the_twin(opened: Any) -> None:
    assert [name for name, _ in state(opened)["runs"]] == ["Block diffusion", "Autoregressive"]
    said = opened.inner_text(".dr-verdict")
    assert f"{state(opened)['speedUp']:.2f}"[:3] in said
    assert said.count("passes") == 2
    assert "Measured on this machine" in opened.inner_text("denoising-replay")


def test_another_threshold_makes_another_replay(opened: Any) -> None:
    opened.fill("#md-threshold input[type=number]", "0.5")
    opened.keyboard.press("Enter")
    opened.click("#md-race")
    opened.get_by_text("more than 50% sure").wait_for()


def test_thresholds_are_tried(opened: Any) -> None:
    opened.get_by_role("tab", name="Accuracy and speed").click()
    opened.click("#md-again")
    opened.wait_for_selector("#md-trials .md-table")
    assert opened.locator("#md-trials tbody tr").count() == 1
    assert "own text layer" in opened.inner_text("#md-trials")
    opened.wait_for_selector("#md-difference .md-diff")
    opened.get_by_label("whole page").check()
    opened.click("#md-sweep")
    opened.wait_for_function("document.querySelectorAll('#md-trials tbody tr').length >= 7")
    assert opened.locator("#md-trials svg circle").count() >= 7


def test_the_results_can_be_seen_and_downloaded(opened: Any, example: Path) -> None:
    opened.get_by_role("tab", name="Document").click()
    opened.frame_locator("#md-rendered iframe").locator("section").wait_for()
    opened.get_by_role("tab", name="JSON").click()
    opened.wait_for_selector("#md-json .cm-content")
    assert "schema_version" in opened.inner_text("#md-json")
    opened.get_by_role("tab", name="Downloads").click()
    with opened.expect_download() as begun:
        opened.get_by_role("link", name="JSON").click()
    assert begun.value.suggested_filename == "sample.json"
    data = json.loads(Path(begun.value.path()).read_text(encoding="utf-8"))
    assert data["source"] == "sample.pdf"
    assert [page["index"] for page in data["pages"]] == [0]
    opened.click("#md-all")
    opened.wait_for_function("document.querySelector('#md-downloads').innerText.includes('1, 2')")


def test_another_page_is_read_when_it_is_chosen(opened: Any) -> None:
    opened.click("#md-number input")
    opened.get_by_role("option", name="2", exact=True).click()
    opened.wait_for_selector('#md-view .md-page[aria-label^="Page 2"]')
    assert "page 2 of 2" in opened.inner_text("#md-status")


def test_problems_are_said(page: Any, tmp_path: Path) -> None:
    broken = tmp_path / "broken.pdf"
    broken.write_bytes(b"%PDF-1.7 and nothing more")
    upload(page, broken)
    page.wait_for_selector("#md-status [role=alert]")
    assert "broken.pdf" in page.inner_text("#md-status")
    assert "/" not in page.inner_text("#md-status")
    page.click('#md-upload [aria-label="Clear"], #md-upload [title="Clear"]')
    upload(page, save_pdf(tmp_path / "locked.pdf", password="sesame"))
    page.wait_for_function("document.querySelector('#md-status').innerText.includes('password')")
    page.get_by_text("Protected document?").click()
    page.fill("#md-password input", "sesame")
    page.click("#md-unlock")
    page.wait_for_selector("#md-view .md-page")
    assert page.locator("#md-status [role=alert]").count() == 0


def test_a_file_over_the_limit_is_refused(page: Any, tmp_path: Path) -> None:
    large = tmp_path / "large.pdf"
    large.write_bytes(b"%PDF-1.7\n" + bytes(300_000))
    upload(page, large)
    page.get_by_text("maximum allowed size").first.wait_for()
    assert page.locator("#md-view .md-page").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_has_no_sideways_scrolling(chromium: Any, address: str, scheme: str) -> None:
    context = chromium.new_context(viewport={"width": 360, "height": 740}, color_scheme=scheme, has_touch=True)
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(address)
    page.click("#md-example-sample")
    page.wait_for_selector("denoising-replay .dr-side")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    dark = page.evaluate("document.body.classList.contains('dark') || !!document.querySelector('.dark')")
    assert dark == (scheme == "dark")
    context.close()
