"""The pictures of the demo that docs/demo.md shows: the demo itself, driven in a headless Chromium.

    python scripts/make_demo_screenshots.py [--out docs/images] [--chromium PATH]

The packaged checkpoint and its autoregressive twin read the first page of an example, and the region that the demo
chooses by itself is replayed up to a moment at which both are busy. All four pictures are of one visit, so that their
numbers agree, and every number in them is measured on the machine that runs this: run it where nothing else does.
"""

from __future__ import annotations

import argparse
import io
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image
from playwright.sync_api import Page, sync_playwright

from mineru_diffusion.assets import packaged_checkpoint, packaged_twin

ROOT = Path(__file__).parents[1]
LAPTOP, PHONE = (1366, 768), (390, 844)
PATIENCE = 300_000
"""Milliseconds for whatever the page is asked to do."""
ROUNDS = 9
LARGEST = 120_000
"""Bytes of a picture, exclusive."""
COLOURS = (256, 192, 128, 96, 64, 48, 32)

# Both sides should have something to show and something left to do: the first moment at which diffusion has three
# quarters of its tokens and the twin a fifth, or else the last one before diffusion is done.
SEEK = """() => {
  const replay = document.querySelector("denoising-replay");
  replay.pause();
  const [mine, other] = replay.sides;
  const before = replay.moments.filter((moment) => moment < Math.max(...mine.run.moments));
  for (const moment of before) {
    replay.seek(moment);
    if (mine.tokens >= 0.75 * mine.run.tokens && other.tokens >= 0.2 * other.run.tokens) break;
  }
  return replay.sides.map((side) => `${side.tokens} of ${side.run.tokens}`).join(" and ");
}"""

# Nothing is on its way: no spinner, no progress bar, no picture half loaded, and the replay is of what was asked.
SETTLED = """() => {
  const trackers = [...document.querySelectorAll("[data-testid='status-tracker']")];
  const replay = document.querySelector("denoising-replay");
  return trackers.every((tracker) => tracker.classList.contains("hide") || !tracker.checkVisibility())
    && [...document.images].every((image) => image.complete && image.naturalWidth > 0)
    && document.querySelectorAll("#md-view [aria-pressed='true']").length === 1
    && replay !== null && replay.shown === replay.dataset.replay && !replay.due;
}"""


@contextmanager
def demo() -> Iterator[str]:
    """The demo as users start it, at a free port; gives its address."""
    command = [sys.executable, "-m", "mineru_diffusion.cli", "demo", "--port", "0", "--rounds", str(ROUNDS)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        found = next((at for line in process.stdout if (at := re.search(r"http://\S+", line))), None)
        if found is None:
            sys.exit("the demo did not start; what it said is above")
        yield found.group()
    finally:
        process.terminate()
        process.wait(60)


def settle(page: Page) -> None:
    """Wait until the page is at rest, with nothing focused or pointed at."""
    page.evaluate("document.activeElement && document.activeElement.blur()")
    page.mouse.move(0, 0)
    page.wait_for_function(SETTLED)
    page.evaluate("window.scrollTo(0, 0)")
    page.wait_for_timeout(500)  # layouts that follow a change of size, and colours that fade


def with_colours(image: Image.Image, count: int) -> Image.Image:
    """A picture of flat areas, letters and little dots that mean something, in at most so many colours.

    The commonest ones are kept as they are, so that areas stay what they were. The others are chosen by the square root
    of how often each occurs: by the count itself, an orange dot would not be worth a colour of its own. Pillow's own
    way to map to a palette rounds first, which turns white to grey.
    """
    pixels = np.asarray(image).reshape(-1, 3)
    found, which, times = np.unique(pixels, axis=0, return_inverse=True, return_counts=True)
    order = np.argsort(-times)
    kept, others = order[: count // 8], order[count // 8 :]
    sample = np.repeat(found[others], np.ceil(np.sqrt(times[others])).astype(int), axis=0)[None]
    chosen = Image.fromarray(sample).quantize(count - len(kept), method=Image.Quantize.MAXCOVERAGE, kmeans=3)
    rest = np.unique(np.asarray(chosen.convert("RGB")).reshape(-1, 3), axis=0)
    colours = np.concatenate([found[kept], rest])
    distances = ((found[:, None].astype(int) - colours[None].astype(int)) ** 2).sum(axis=-1)
    nearest = distances.argmin(axis=1).astype(np.uint8)
    result = Image.fromarray(nearest[which].reshape(image.height, image.width))
    result.putpalette(colours.ravel().tolist())
    return result


def small_png(picture: bytes) -> bytes:
    """The same picture with as many colours as fit into fewer than `LARGEST` bytes."""
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    for count in COLOURS:
        content = io.BytesIO()
        with_colours(image, count).save(content, "PNG", optimize=True)
        if content.tell() < LARGEST:
            return content.getvalue()
    sys.exit(f"a picture has {LARGEST} bytes or more even in {COLOURS[-1]} colours")


def take(page: Page, path: Path) -> None:
    """The whole page, however far one would have to scroll."""
    settle(page)
    path.write_bytes(small_png(page.screenshot(full_page=True, animations="disabled")))
    with Image.open(path) as image:
        print(f"{path}: {image.width} x {image.height}, {path.stat().st_size / 1000:.0f} kB")


def take_all(page: Page, address: str, out: Path) -> None:
    page.goto(address)
    page.click("#md-example-report")
    page.wait_for_selector("denoising-replay .dr-side")
    settle(page)
    shown = page.evaluate(SEEK)
    print(f"{page.inner_text('.dr-verdict')} Shown: {shown} tokens.")
    take(page, out / "demo_desktop.png")

    page.emulate_media(color_scheme="dark")
    page.wait_for_selector("body.dark, .dark")
    take(page, out / "demo_dark.png")
    page.emulate_media(color_scheme="light")

    page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
    take(page, out / "demo_phone.png")
    page.set_viewport_size({"width": LAPTOP[0], "height": LAPTOP[1]})

    page.get_by_role("tab", name="Accuracy and speed").click()
    page.click("#md-sweep")
    page.wait_for_function("document.querySelectorAll('#md-trials tbody tr').length >= 7")
    page.wait_for_selector("#md-difference .md-diff")
    take(page, out / "demo_thresholds.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images")
    parser.add_argument("--chromium", type=Path, help="the browser; default: the one on the PATH")
    options = parser.parse_args()

    found = (shutil.which(name) for name in ("chromium", "chromium-browser"))
    chromium = options.chromium or next((Path(name) for name in found if name), None)
    if chromium is None or not chromium.is_file():
        where = "on the PATH" if chromium is None else f"at {chromium}"
        sys.exit(f"there is no Chromium {where}; install it (Debian: apt-get install chromium) or pass --chromium PATH")
    packaged_checkpoint()
    if packaged_twin() is None:
        sys.exit("this build of the package has no autoregressive twin, so there is nothing to compare with")
    options.out.mkdir(parents=True, exist_ok=True)
    with demo() as address, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": LAPTOP[0], "height": LAPTOP[1]}, color_scheme="light")
        page.set_default_timeout(PATIENCE)
        broken: list[str] = []
        page.on("pageerror", lambda error: broken.append(str(error)))
        take_all(page, address, options.out)
        browser.close()
    if broken:
        sys.exit("the page had errors: " + "; ".join(broken))


if __name__ == "__main__":
    main()
