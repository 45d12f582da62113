"""The README's moving picture: one region read by block diffusion and by its autoregressive twin, on one clock.

    python scripts/make_demo_animation.py [--twin FOLDER] [--document FILE] [--region N] [--out docs/images/replay.webp]

Everything in it is measured: the region is read by both checkpoints in turns, the best of the rounds counts, and the
moments at which tokens appear are those of that round, slowed down by the factor that the picture names. Without an
autoregressive checkpoint there is nothing to show, and the script says so; `--stand-in` tries it out with the diffusion
checkpoint at one token a step, which the picture then says too.
"""

from __future__ import annotations

import argparse
import io
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from PIL import Image, ImageDraw, ImageFont

from mineru_diffusion.assets import packaged_twin
from mineru_diffusion.demo.pages import open_document, read_page
from mineru_diffusion.demo.plans import RegionPlan
from mineru_diffusion.demo.readers import Readers
from mineru_diffusion.demo.sessions import Sessions
from mineru_diffusion.demo.settings import DemoSettings
from mineru_diffusion.engine import load_engine

Colour = tuple[int, int, int]

ROOT = Path(__file__).parents[1]
WIDTH, EDGE, GAP = 1000, 24, 20
PAPER: Colour = (255, 255, 255)
INK: Colour = (31, 41, 55)
SOFT: Colour = (107, 114, 128)
RULE: Colour = (222, 226, 232)
MASK: Colour = (214, 217, 224)
BLUE: Colour = (31, 95, 191)
LEVELS = ((0.99, (213, 230, 242)), (0.95, (209, 237, 228)), (0.85, (248, 242, 207)), (0.7, (254, 226, 190)))
LEAST: Colour = (248, 190, 180)
FRESH: Colour = (250, 214, 90)
FPS = 12
FRESH_FRAMES = 3
FONTS = Path(matplotlib.get_data_path()) / "fonts" / "ttf"


def font(name: str, size: int) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(str(FONTS / name), size)


MONO, TEXT, BOLD, BIG = (
    font("DejaVuSansMono.ttf", 15),
    font("DejaVuSans.ttf", 14),
    font("DejaVuSans-Bold.ttf", 17),
    font("DejaVuSans-Bold.ttf", 30),
)
CELL_WIDTH, CELL_HEIGHT = 9, 21


@dataclass(frozen=True)
class Cell:
    """A place for a token: where it is, from when it is masked, when it is decided (None: never, it is cut off)."""

    x: int
    y: int
    text: str
    shown: float
    decided: float | None
    gone: float
    colour: Colour


def colour_of(confidence: float) -> Colour:
    return next((colour for bound, colour in LEVELS if confidence >= bound), LEAST)


def cells_of(run: dict[str, Any], width: int) -> tuple[list[Cell], int]:
    """The cells of one side, wrapped at `width` pixels, and how many rows they take."""
    cells: list[Cell] = []
    columns = width // CELL_WIDTH
    row = 0
    for line in run["lines"]:
        column = 0
        for sequence in line:
            times, block = sequence["time"], run["block"]
            end = times[-1] if times else 0.0
            shown, count = 0.0, len(sequence["tokens"])
            for first in range(0, count, block):
                complete = shown
                for at in range(first, first + block):
                    if column >= columns:
                        row, column = row + 1, 0
                    decided, text, colour = None, "", MASK
                    if at < count:
                        decided = times[sequence["step"][at] - 1]
                        text, colour = sequence["tokens"][at], colour_of(sequence["confidence"][at])
                        complete = max(complete, decided)
                    place = (column * CELL_WIDTH, row * CELL_HEIGHT)
                    cells.append(Cell(*place, text, shown, decided, end, colour))
                    if at < count:
                        column += 1
                shown = complete
            column += 1
        row += 1
    return cells, row


class Picture:
    """Frames of a comparison.

    Args:
        data: as `trace.replay_data` makes it.
        crop: the region.
        seconds: how long the replay takes to watch.
    """

    def __init__(self, data: dict[str, Any], crop: Image.Image, seconds: float) -> None:
        self.data, self.seconds = data, seconds
        self.column = (WIDTH - 2 * EDGE - GAP) // 2
        wide = WIDTH - 2 * EDGE
        high = round(crop.height * wide / crop.width)
        if high > 200:
            wide, high = round(wide * 200 / high), 200
        self.crop = crop.resize((wide, high), Image.Resampling.LANCZOS)
        self.sides = [cells_of(run, self.column) for run in data["runs"]]
        rows = max(count for _, count in self.sides)
        self.top = EDGE + high + 18
        self.text_top = self.top + 56
        self.height = self.text_top + rows * CELL_HEIGHT + 84
        self.end = max(run["seconds"] for run in data["runs"])
        # Until the first tokens both take in the image, and nothing moves.
        self.begin = 0.96 * min(run["moments"][0] for run in data["runs"])

    @property
    def slowed(self) -> float:
        """Seconds of watching for a second of work."""
        return self.seconds / (self.end - self.begin)

    def frames(self) -> Iterator[Image.Image]:
        count = round(self.seconds * FPS)
        for number in range(count):
            yield self.frame(self.begin + (self.end - self.begin) * number / count)
        yield self.frame(self.end)

    def frame(self, now: float) -> Image.Image:
        """What there is to see after `now` measured seconds."""
        image = Image.new("RGB", (WIDTH, self.height), PAPER)
        draw = ImageDraw.Draw(image)
        image.paste(self.crop, ((WIDTH - self.crop.width) // 2, EDGE))
        for at, (run, (cells, _)) in enumerate(zip(self.data["runs"], self.sides, strict=True)):
            self._side(draw, EDGE + at * (self.column + GAP), run, cells, now)
        self._foot(draw, now)
        return image

    def _side(self, draw: ImageDraw.ImageDraw, left: int, run: dict[str, Any], cells: list[Cell], now: float) -> None:
        done = now >= run["seconds"]
        here = min(now, run["seconds"])
        draw.text((left, self.top), run["name"], fill=INK, font=BOLD)
        moments = sum(moment <= now for moment in run["moments"])
        passes = run["passes"] if done else (moments + run["passes"] - len(run["moments"])) * (moments > 0)
        clock = f"{here * 1000:.0f} ms" + (" ✓" if done else "")
        draw.text((left + self.column, self.top), clock, fill=BLUE if done else INK, font=BOLD, anchor="ra")
        first = f", first token after {run['moments'][0] * 1000:.0f} ms" if moments else ""
        said = f"{passes} of {run['passes']} passes, {run['tokens_per_step']:.1f} tokens a step{first}"
        draw.text((left, self.top + 23), said, fill=SOFT, font=TEXT)
        y = self.top + 46
        draw.rectangle((left, y, left + self.column, y + 3), fill=RULE)
        draw.rectangle((left, y, left + self.column * here / run["seconds"], y + 3), fill=BLUE)
        window = FRESH_FRAMES / FPS / self.slowed
        for cell in cells:
            if cell.shown > now or (cell.decided is None and now >= cell.gone):
                continue
            x, y = left + cell.x, self.text_top + cell.y
            box = (x, y, x + CELL_WIDTH - 1, y + CELL_HEIGHT - 3)
            if cell.decided is None or cell.decided > now:
                draw.rectangle((*box[:2], box[2] - 1, box[3]), fill=MASK)
                continue
            fresh = now - cell.decided < window and now < self.end
            draw.rectangle(box, fill=FRESH if fresh else cell.colour)
            draw.text((x, y), cell.text, fill=INK, font=MONO)

    def _foot(self, draw: ImageDraw.ImageDraw, now: float) -> None:
        y = self.height - 62
        draw.line((EDGE, y, WIDTH - EDGE, y), fill=RULE)
        mine, other = self.data["runs"]
        if now >= self.end:
            draw.text((EDGE, y + 12), f"{self.data['speed_up']:.1f}×", fill=BLUE, font=BIG)
            left = EDGE + draw.textlength(f"{self.data['speed_up']:.1f}×", font=BIG) + 14
            said = f"as fast: {mine['tokens_per_second']:.0f} against {other['tokens_per_second']:.0f} tokens a second"
            draw.text((left, y + 11), said, fill=INK, font=TEXT)
        else:
            left = EDGE
            draw.text((left, y + 11), "Each token in the colour of its confidence", fill=INK, font=TEXT)
        digits = 0 if self.slowed >= 10 else 1
        slow = f"measured times, shown {self.slowed:.{digits}f} times slower" if self.slowed > 1 else "measured times"
        skipped = f"; the first {self.begin * 1000:.0f} ms, in which both take in the image, are left out"
        draw.text((left, y + 31), slow + skipped, fill=SOFT, font=TEXT)


def choose(plans: dict[int, RegionPlan], number: int | None) -> RegionPlan:
    if number is not None:
        if number - 1 not in plans:
            sys.exit(f"there is no region {number} to read; there are {', '.join(str(o + 1) for o in plans)}")
        return plans[number - 1]
    fitting = [plan for plan in plans.values() if max(plan.lines) < 5] or list(plans.values())
    return max(fitting, key=lambda plan: len(plan.region.content))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="diffusion checkpoint; default: the packaged one")
    parser.add_argument("--twin", type=Path, help="autoregressive checkpoint; default: the packaged one")
    parser.add_argument("--stand-in", action="store_true", help="do without: one token a step of the same checkpoint")
    parser.add_argument("--document", type=Path, default=ROOT / "examples" / "report.pdf")
    parser.add_argument("--region", type=int, help="its number on page 1; default: a paragraph of at most five lines")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=7.0, help="of watching")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images" / "replay.webp")
    options = parser.parse_args()

    twin = options.twin or packaged_twin()
    if twin is None and not options.stand_in:
        sys.exit("there is no autoregressive checkpoint: pass --twin FOLDER")
    settings = DemoSettings()
    readers = Readers(
        load_engine(options.model), load_engine(twin) if twin is not None and not options.stand_in else None
    )
    with tempfile.TemporaryDirectory() as folder:
        session = Sessions(Path(folder), settings).open(options.document, options.document.name, keep=True)
        open_document(session, settings)
        plan = choose(dict(read_page(session, 0, readers, settings).plans), options.region)
    race = readers.race(plan, readers.threshold, options.rounds, budget=300)
    data = readers.replay(plan, race)
    readers.close()
    crop = Image.open(io.BytesIO(plan.picture)).convert("RGB")
    picture = Picture(data, crop, options.seconds)
    frames = list(picture.frames())
    durations = [round(1000 / FPS)] * (len(frames) - 1) + [3500]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    # Flat colours and sharp letters: without loss is both smaller and better than with.
    frames[0].save(
        options.out, save_all=True, append_images=frames[1:], duration=durations, loop=0, lossless=True, method=4
    )
    for run in data["runs"]:
        print(f"{run['name']}: {run['seconds'] * 1000:.1f} ms, {run['passes']} passes, {run['tokens']} tokens")
    print(f"{data['speed_up']}x; {options.out}: {len(frames)} frames, {options.out.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
