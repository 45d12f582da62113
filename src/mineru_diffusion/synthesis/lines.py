"""Endless, seeded images of text lines with exact truth, cut out as a line splitter would cut them from a page.

In: a seed. Out: LineSample after LineSample: grey image 32 px high, its text, and where each character stands.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np
from numpy.typing import NDArray

from mineru_diffusion.errors import UsageError
from mineru_diffusion.synthesis import cutting, damage
from mineru_diffusion.synthesis.faces import LIGATURES, Face, FontSpec, face
from mineru_diffusion.synthesis.fonts import coverage, discover_fonts, select_fonts
from mineru_diffusion.synthesis.text import TextSampler
from mineru_diffusion.synthesis.typeset import typeset

# (pixels per em on the page, oversampling): 10 pt at 150, 200 and 300 dpi is 21, 28 and 42 pixels. Without
# oversampling small letters sit on whole pixels, as in screenshots. Few values, so that faces stay cached.
_SIZES = ((13, 2), (17, 1), (17, 2), (21, 1), (21, 2), (25, 1), (25, 2), (29, 1), (29, 2), (36, 1), (42, 1), (52, 1))
_SIZE_WEIGHTS = (0.03, 0.03, 0.06, 0.04, 0.12, 0.04, 0.14, 0.08, 0.14, 0.14, 0.12, 0.06)
_SIZE_ENDS = np.cumsum(_SIZE_WEIGHTS) / sum(_SIZE_WEIGHTS)
_TRIES = 6
_BLOCK, _POOL = 2048, 128
_WORN_SHARE = 0.55
_LIGATURE_SHARE = 0.65


@dataclass(frozen=True)
class LineSample:
    """Attributes:
    image: grey uint8 [height, W].
    text: what the image shows.
    char_x: left and right edge of each character in image pixels, float32 [n, 2], non-decreasing.
    font: name of the face.
    """

    image: NDArray[np.uint8]
    text: str
    char_x: NDArray[np.float32]
    font: str


@dataclass(frozen=True)
class Setting:
    """A face, its size on the page in pixels per em, how much larger it is drawn first, and sometimes a second face of
    the family for a part of the line."""

    font: FontSpec
    size: int
    oversample: int
    partner: FontSpec | None = None

    @property
    def face(self) -> Face:
        return face(self.font, self.size * self.oversample)

    def runs(self, text: str, rng: np.random.Generator) -> list[tuple[str, Face]]:
        """The text in this face, or now and then up to some word, or from there on, in the partner."""
        spaces = [i for i, c in enumerate(text) if c == " "]
        if self.partner is None or not spaces or rng.random() < 0.6:
            return [(text, self.face)]
        border = spaces[int(rng.integers(len(spaces)))]
        pieces = [text[:border], text[border:]]
        faces = [self.face, self.face]
        changed = int(rng.integers(2))
        faces[changed] = face(self.partner, self.size * self.oversample)
        return list(zip(pieces, faces, strict=True)) if faces[changed].covers(pieces[changed]) else [(text, self.face)]


class LineRenderer:
    """Draws given texts.

    Args:
        fonts: faces to choose from.
        height: height of every image, pixels.
        degrade: 0 gives clean lines only, without rules and parts of neighbouring lines; 1 the usual wear; more wears
            harder.
        worn_share: part of the lines that is worn (at `degrade` below 1 that much less), the others are clean.
        loose: how often lines have much paper above and below, from 0 to 1. The parser cuts close to the ink.

    Raises:
        UsageError: no fonts, a height under 8, or a share outside 0..1.
    """

    def __init__(
        self,
        fonts: Sequence[FontSpec],
        *,
        height: int = 32,
        degrade: float = 1.0,
        worn_share: float = _WORN_SHARE,
        loose: float = 1.0,
    ) -> None:
        if not fonts:
            raise UsageError("no fonts to draw with: pass discover_fonts(), which is never empty")
        if height < 8 or degrade < 0:
            raise UsageError(f"bad line height {height} or degrade {degrade}: use height >= 8 and degrade >= 0")
        for name, share in (("worn", worn_share), ("loose", loose)):
            if not 0 <= share <= 1:
                raise UsageError(f"bad share of {name} lines {share}: use a number from 0 to 1")
        self.fonts = tuple(fonts)
        self.height = height
        self.degrade = degrade
        self.worn_share = worn_share
        self.loose = loose
        # A family of n faces counts as sqrt(n) families, or a few big families would be most of the data.
        self._families: dict[str, list[FontSpec]] = {}
        for font in self.fonts:
            self._families.setdefault(font.family, []).append(font)
        weights = np.array([f.commonness / len(self._families[f.family]) ** 0.5 for f in self.fonts])
        self._ends = np.cumsum(weights) / weights.sum()

    def setting(self, rng: np.random.Generator) -> Setting:
        """A face and a size, at random."""
        font = self.fonts[min(int(np.searchsorted(self._ends, rng.random())), len(self.fonts) - 1)]
        size, oversample = _SIZES[int(np.searchsorted(_SIZE_ENDS, rng.random()))]
        family = self._families[font.family]
        partner = family[int(rng.integers(len(family)))] if rng.random() < 0.35 else None
        return Setting(font, size, oversample, partner if partner != font else None)

    def render(self, text: str, rng: np.random.Generator) -> LineSample:
        """Draw one line in any face that can.

        Raises:
            UsageError: text is empty, has outer spaces, or no face at hand can draw it.
        """
        for _ in range(_TRIES):
            setting = self.setting(rng)
            if setting.face.covers(text):
                return self.render_in(setting, text, rng)
        font = next((f for f in self.fonts if coverage(f).issuperset(text)), None)
        if font is None:
            raise UsageError(f"no font at hand has every character of {text!r}: install more fonts")
        return self.render_in(Setting(font, setting.size, setting.oversample), text, rng)

    def render_in(self, setting: Setting, text: str, rng: np.random.Generator) -> LineSample:
        """Draw one line in a given face, which must cover the text.

        Raises:
            UsageError: text is empty or has outer spaces.
        """
        if not text or text != text.strip():
            raise UsageError(f"cannot draw {text!r}: pass text without outer spaces")
        worn = rng.random() < self.worn_share * min(self.degrade, 1.0)
        strength = self.degrade if worn else 0.0
        gaps = _gaps(text, setting.face.size, rng)
        # Letter-spaced text has no ligatures; LaTeX, typst and browsers draw them elsewhere, many editors do not.
        spaced = gaps is not None and bool(gaps.all())
        ligatures = not spaced and any(letters in text for letters in LIGATURES) and rng.random() < _LIGATURE_SHARE
        ink = typeset(setting.runs(text, rng), gaps=gaps, reduce=setting.oversample, ligatures=ligatures)
        canvas, edges = ink.canvas, ink.edges
        if worn and rng.random() < 0.5:
            canvas, edges = cutting.tilt(ink, rng, strength)
        if worn and rng.random() < 0.2 and setting.size >= 21:
            canvas = damage.reshape_strokes(canvas, rng, most=1 if setting.size < 35 else 2)
        whole_line = self.loose * (0.6 if len(text) < 4 else 0.25)
        crop = cutting.choose_crop(canvas, edges, ink, self.height, rng, whole_line=whole_line, loose=0.08 * self.loose)
        if rng.random() < 0.25 * min(self.degrade, 1.0):
            canvas = _add_neighbours(canvas, text, ink.em, setting, rng)
        drawn = cutting.cut_out(canvas, crop, self.height, rng)
        if rng.random() < 0.08 * min(self.degrade, 1.0):
            cutting.add_rules(drawn, crop, ink, rng)
        amount = (drawn / 255).astype(np.float32)
        image = damage.print_worn(amount, rng, strength) if worn else damage.print_clean(amount, rng)
        char_x = np.clip((edges - crop.left) * crop.scale_x, 0, image.shape[1])
        return LineSample(image, text, np.maximum.accumulate(char_x, axis=0).astype(np.float32), setting.font.name)


class LineStream:
    """Endless lines, fully determined by the arguments and the fonts of the machine. Picklable; sample i depends on
    the seed and i only.

    Args:
        seed: any non-negative integer.
        split: "train" or "heldout": disjoint words and font families.
        min_chars, max_chars: range of line lengths, characters.
        height: image height, pixels.
        degrade, worn_share, loose: see `LineRenderer`.
        fonts: faces to use as they are; None takes the split's share of `discover_fonts()`.

    Raises:
        UsageError: an argument is out of range.
        MissingExtra: wordfreq is not installed (raised when the first line is drawn).
    """

    def __init__(
        self,
        *,
        seed: int,
        split: str = "train",
        min_chars: int = 1,
        max_chars: int = 70,
        height: int = 32,
        degrade: float = 1.0,
        worn_share: float = _WORN_SHARE,
        loose: float = 1.0,
        fonts: Sequence[FontSpec] | None = None,
    ) -> None:
        if not 1 <= min_chars <= max_chars:
            raise UsageError(f"bad length range {min_chars}..{max_chars}: use 1 <= min_chars <= max_chars")
        if seed < 0:
            raise UsageError(f"bad seed {seed}: use a non-negative integer")
        self.seed, self.min_chars, self.max_chars = seed, min_chars, max_chars
        self._sampler = TextSampler(split=split)
        chosen = select_fonts(discover_fonts(), split) if fonts is None else fonts
        self._renderer = LineRenderer(chosen, height=height, degrade=degrade, worn_share=worn_share, loose=loose)
        self._kept: tuple[int, tuple[Setting, ...]] | None = None

    def __iter__(self) -> Iterator[LineSample]:
        return map(self.sample, count())

    def sample(self, number: int) -> LineSample:
        """Line `number` of the stream."""
        rng = np.random.default_rng((self.seed, number))
        pool = self._pool(number // _BLOCK)
        while True:
            text = self._sampler.sample(rng, self.min_chars, self.max_chars)
            for index in rng.integers(len(pool), size=_TRIES).tolist():
                setting = pool[index]
                if setting.face.covers(text):
                    return self._renderer.render_in(setting, text, rng)
            text = " ".join("".join(filter(setting.face.covers, text)).split())
            if len(text) >= self.min_chars and self._sampler.allows(text):
                return self._renderer.render_in(setting, text, rng)

    def _pool(self, block: int) -> tuple[Setting, ...]:
        """The faces that a block of lines shares: drawing a face's characters anew for each line would take longest."""
        if self._kept is None or self._kept[0] != block:
            rng = np.random.default_rng((self.seed, block, 1))
            self._kept = (block, tuple(self._renderer.setting(rng) for _ in range(_POOL)))
        return self._kept[1]


def _gaps(text: str, em: int, rng: np.random.Generator) -> NDArray[np.float64] | None:
    """Extra pixels after each character: letter-spaced lines, justified ones, or columns of a table."""
    roll = rng.random()
    if roll < 0.1:
        # Word processors that squeeze a paragraph make its letters touch.
        return np.full(len(text), em * (rng.uniform(-0.03, 0.12) if roll < 0.06 else rng.uniform(-0.09, -0.02)))
    if roll > 0.4:
        return None
    spaces = np.array([c == " " for c in text])
    if roll < 0.3:
        return spaces * (em * rng.uniform(-0.06, 0.35))
    columns = rng.random(len(text)) < min(0.5, 5 / len(text))
    return spaces * columns * rng.uniform(0.3, 2.5, len(text)) * em


def _add_neighbours(
    canvas: NDArray[np.uint8], text: str, em: float, setting: Setting, rng: np.random.Generator
) -> NDArray[np.uint8]:
    words = text.split(" ")
    shuffled = " ".join(words[i] for i in rng.permutation(len(words)))
    other = typeset([(shuffled, setting.face)], reduce=setting.oversample).canvas
    return cutting.add_neighbours(canvas, other, int(em * rng.uniform(1.0, 1.25)), rng)
