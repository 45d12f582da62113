"""Formulas as pictures, by typst and by matplotlib, in several mathematical fonts.

In: a Formula and the name of a face. Out: grey uint8, 255 = paper, cut at the ink.
"""

from __future__ import annotations

import logging
import re
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mineru_diffusion.errors import MissingExtra, UsageError
from mineru_diffusion.synthesis.formulas import Formula
from mineru_diffusion.synthesis.typst_engine import EMBEDDED_MATH, draw, family_names, quote

MATPLOTLIB = "matplotlib"
TYPST = "typst"
_MATPLOTLIB_SETS = ("cm", "stix", "dejavuserif", "stixsans")
# Used where the machine has them. Not the old "STIX Math": typst sets the limits of its integrals on top of the sign.
_TYPST_FONTS = (
    "Latin Modern Math", "DejaVu Math TeX Gyre", "STIX Two Math", "TeX Gyre Termes Math", "TeX Gyre Pagella Math",
    "Libertinus Math", "XITS Math",
)  # fmt: skip
_POINTS_PER_INCH = 72
_refused: set[tuple[str, str]] = set()


class NotDrawable(Exception):
    """This face cannot draw this formula; another one may."""


@cache
def formula_faces() -> tuple[tuple[str, str], ...]:
    """(backend, font) pairs that can be passed to `render_formula` on this machine.

    Raises:
        MissingExtra: typst is not installed.
    """
    here = family_names()
    typst_fonts = (EMBEDDED_MATH, *(name for name in _TYPST_FONTS if name in here))
    return (*((TYPST, name) for name in typst_fonts), *((MATPLOTLIB, name) for name in _MATPLOTLIB_SETS))


def render_formula(formula: Formula, face: tuple[str, str], em: float, *, display: bool = True) -> NDArray[np.uint8]:
    """Draw a formula.

    Args:
        formula: what to draw.
        face: one of `formula_faces()`.
        em: font size in pixels.
        display: as a display, with limits above and below; else as in running text (typst only).

    Returns:
        Grey uint8 [H, W], cut at the ink.

    Raises:
        NotDrawable: the face lacks a symbol or a construction of the formula.
        MissingExtra: the backend is not installed.
        UsageError: unknown face.
    """
    backend, font = face
    if backend == TYPST:
        picture = _by_typst(formula, font, em, display)
    elif backend == MATPLOTLIB and font in _MATPLOTLIB_SETS:
        picture = _by_matplotlib(formula, font, em)
    else:
        raise UsageError(f"unknown formula face {face}: use one of formula_faces()")
    return cut_at_ink(picture)


def cut_at_ink(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The part of a grey picture that holds everything darker than paper.

    Raises:
        NotDrawable: there is nothing.
    """
    rows, columns = np.flatnonzero((picture < 250).any(axis=1)), np.flatnonzero((picture < 250).any(axis=0))
    if not len(rows):
        raise NotDrawable("the picture is empty")
    return picture[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]


def _by_typst(formula: Formula, font: str, em: float, display: bool) -> NDArray[np.uint8]:
    gap = " " if display else ""
    source = (
        "#set page(width: auto, height: auto, margin: 0.6em, fill: white)\n"
        f"#set text(size: 10pt)\n#show math.equation: set text(font: {quote(font)})\n${gap}{formula.typst}{gap}$"
    )
    return draw(source, em * _POINTS_PER_INCH / 10)


def _by_matplotlib(formula: Formula, font: str, em: float) -> NDArray[np.uint8]:
    if formula.mathtext is None:
        raise NotDrawable("mathtext has no notation for a part of the formula")
    if font != "cm" and r"\epsilon" in formula.mathtext:
        raise NotDrawable("outside of its cm set mathtext draws both epsilons alike")
    # Of a text that it drew a moment ago the parser hands out the same picture without a word.
    if (formula.mathtext, font) in _refused:
        raise NotDrawable("mathtext lacks a symbol of the formula")
    parser, properties = _parser(), _properties(font, em)
    with _Complaints() as complaints:
        try:
            parsed = parser.parse(f"${_open_fractions(formula.mathtext)}$", dpi=_POINTS_PER_INCH, prop=properties)
        except ValueError as error:
            raise NotDrawable(str(error)) from error
    if complaints.heard:
        # It draws a dummy for what the font lacks, and only says so.
        _refused.add((formula.mathtext, font))
        raise NotDrawable(complaints.heard[0])
    return 255 - np.asarray(parsed.image, dtype=np.uint8)


def _open_fractions(mathtext: str) -> str:
    r"""`\frac` outside of all braces as `\dfrac`: mathtext sets the plain one small everywhere."""
    depth, out = 0, []
    for token in re.findall(r"\\[a-zA-Z]+|\\?.", mathtext):
        depth += (token == "{") - (token == "}")
        out.append(r"\dfrac" if depth == 0 and token == r"\frac" else token)
    return "".join(out)


@cache
def _parser() -> Any:
    try:
        from matplotlib.mathtext import MathTextParser
    except ImportError as error:
        raise MissingExtra("drawing formulas", "train") from error
    return MathTextParser("agg")


@cache
def _properties(font: str, em: float) -> Any:
    from matplotlib.font_manager import FontProperties

    return FontProperties(size=em, math_fontfamily=font)


class _Complaints(logging.Handler):
    """Collects what mathtext logs while it works; inside, its log goes nowhere else."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.heard: list[str] = []
        self._logger = logging.getLogger("matplotlib.mathtext")

    def emit(self, record: logging.LogRecord) -> None:
        self.heard.append(record.getMessage())

    def __enter__(self) -> _Complaints:
        self._propagated, self._logger.propagate = self._logger.propagate, False
        self._logger.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self)
        self._logger.propagate = self._propagated
