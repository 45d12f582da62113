"""A font face, and that face at one size with the pictures of its characters kept.

In: a font file. Out: for each character its picture, and where the next one starts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray
from PIL import ImageFont

from mineru_diffusion.errors import UsageError

FALLBACK_FAMILY = "Pillow default"
HELD_OUT_PERCENT = 10

_KERNED = "AVATAWAYTaToTeTrTyVaVoVeWaWeYaYoYeP.F,LTLYr.f’y,v.11"
# A face that draws both alike is not used for the second: no reader could tell which one stands there.
_TWINS = {"–": "-", "—": "-–", "−": "–", "‚": ",", ")": "("}
# The longest first. A text renderer draws these letters as one glyph wherever the face has it.
LIGATURES = {"ffi": "ﬃ", "ffl": "ﬄ", "ff": "ﬀ", "fi": "ﬁ", "fl": "ﬂ"}
_UNASSIGNED = ("\uffff", "\U0010fffe", "\ue5f3")


@dataclass(frozen=True)
class FontSpec:
    """One face of one font file.

    Attributes:
        path: font file; empty for the font that Pillow brings.
        index: face number inside a collection.
        family: family name, the unit of the train/held-out split.
        style: style name, for example "Bold Italic".
        decorative: handwriting and display faces, which are drawn rarely.
    """

    path: str
    index: int
    family: str
    style: str
    decorative: bool = False

    @property
    def name(self) -> str:
        return f"{self.family} {self.style}".strip()

    @property
    def commonness(self) -> float:
        """How often the face should appear, upright text faces being 1."""
        share = 0.15 if self.decorative else 1.0
        style = self.style.casefold()
        share *= 0.35 if "italic" in style or "oblique" in style or "slanted" in style else 1.0
        share *= 0.5 if "bold" in style else 1.0
        return share * (
            0.4 if any(word in style for word in ("thin", "light", "hair", "black", "heavy", "cond", "ext")) else 1.0
        )

    @property
    def held_out(self) -> bool:
        """Whether the family belongs to the held-out split (a stable hash of its name decides)."""
        if self.family == FALLBACK_FAMILY:
            return False
        digest = blake2b(self.family.casefold().encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") % 100 < HELD_OUT_PERCENT

    def load(self, size: int) -> ImageFont.FreeTypeFont:
        """Open the face at `size` pixels per em. Basic layout: positions are sums of whole-pixel advances and kerning.

        Raises:
            OSError: the file is gone or is not a font.
            UsageError: Pillow cannot draw outline fonts.
        """
        if self.path:
            return ImageFont.truetype(self.path, size, index=self.index, layout_engine=ImageFont.Layout.BASIC)
        font = ImageFont.load_default(size)
        if not isinstance(font, ImageFont.FreeTypeFont):
            raise UsageError("this Pillow was built without FreeType: install the Pillow wheel from PyPI")
        return font


@dataclass(frozen=True)
class Glyph:
    """Attributes:
    picture: ink uint8 [h, w], 255 = full.
    left, top: where its first column and row stand, pixels from the pen and from the baseline (above is negative).
    """

    picture: NDArray[np.uint8]
    left: int
    top: int

    def looks_like(self, other: Glyph) -> bool:
        return self.top == other.top and np.array_equal(self.picture, other.picture)


class Face:
    """A face at one size. Everything it hands out is kept, which makes lines in faces already used cheap."""

    def __init__(self, font: FontSpec, size: int) -> None:
        self.font: ImageFont.FreeTypeFont = font.load(size)
        self.size = size
        self.ascent, self.descent = self.font.getmetrics()
        self._glyphs: dict[str, Glyph | None] = {}
        self._lengths: dict[str, float] = {}
        # What a face draws for characters that it lacks: nothing, or some box.
        self._missing = {(g.picture.shape, g.picture.tobytes()) for g in map(self._draw, _UNASSIGNED)}

    @cached_property
    def _kerned(self) -> bool:
        """Many faces have no table of kerning pairs, which spares asking for every pair."""
        return self.font.getlength(_KERNED) != sum(map(self._length, _KERNED))

    def covers(self, text: str) -> bool:
        """Whether the face has a picture for every character."""
        return all(c == " " or self.glyph(c) is not None for c in text)

    def glyph(self, character: str) -> Glyph | None:
        """The character's picture; None where it is empty, or the face lacks it or draws some other one for it."""
        if character not in self._glyphs:
            glyph = self._draw(character)
            lacking = not glyph.picture.any() or (glyph.picture.shape, glyph.picture.tobytes()) in self._missing
            twins = map(self._draw, _TWINS.get(character, ""))
            self._glyphs[character] = None if lacking or any(map(glyph.looks_like, twins)) else glyph
        return self._glyphs[character]

    def joined(self, text: str) -> list[str]:
        """The text's characters, those that one glyph of the face draws together in one piece (in typewriter faces,
        whose ligatures nobody uses, none)."""
        if self._length("i") == self._length("m"):
            return list(text)
        pieces: list[str] = []
        place = 0
        while place < len(text):
            found = (letters for letters in LIGATURES if text.startswith(letters, place))
            piece = next((letters for letters in found if self.covers(LIGATURES[letters])), text[place])
            pieces.append(piece)
            place += len(piece)
        return pieces

    def pens(self, text: str) -> NDArray[np.float64]:
        """Pen position before each character and after the last, kerning included [n + 1], pixels."""
        if not self._kerned:
            return np.cumsum([0.0, *map(self._length, text)])
        # Basic layout adds kerning pair by pair, so the length of a pair tells where its second character starts.
        steps = [self._length(text[i : i + 2]) - self._length(text[i + 1]) for i in range(len(text) - 1)]
        return np.cumsum([0.0, *steps, self._length(text[-1])])

    def _length(self, text: str) -> float:
        if text not in self._lengths:
            self._lengths[text] = self.font.getlength(text)
        return self._lengths[text]

    def _draw(self, character: str) -> Glyph:
        mask, (left, top) = self.font.getmask2(character, "L", anchor="ls")
        width, height = mask.size
        return Glyph(np.frombuffer(bytes(mask), dtype=np.uint8).reshape(height, width), int(left), int(top))


@lru_cache(maxsize=256)  # open files: stay well under the usual limit of 1024
def face(font: FontSpec, size: int) -> Face:
    """The face at `size` pixels per em, kept open in this process.

    Raises:
        OSError: the file is gone or is not a font.
    """
    return Face(font, size)
