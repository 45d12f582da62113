"""Typst in this process: markup in, grey pictures out, and the families whose letters are known to be right.

In: a whole typst document. Out: its first page as uint8 grey. The compiler is kept, so that fonts are listed once.
"""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from mineru_diffusion.errors import MissingExtra, UsageError
from mineru_diffusion.synthesis.charset import CHARSET
from mineru_diffusion.synthesis.faces import FontSpec
from mineru_diffusion.synthesis.fonts import coverage

EMBEDDED_TEXT = "Libertinus Serif"
EMBEDDED_MATH = "New Computer Modern Math"


@dataclass(frozen=True)
class TypstFamily:
    """Attributes:
    name: the family as typst spells it, for `set text(font: ...)`.
    faces: the upright and slanted faces of normal width that typst may choose from; empty for the embedded family.
    bold: whether a bold face is among them.
    """

    name: str
    faces: tuple[FontSpec, ...] = ()
    bold: bool = True

    def covers(self, text: str) -> bool:
        """Whether every face of the family has a picture for every character."""
        letters = set(text) - {" "}
        if not self.faces:
            return letters.issubset(CHARSET)
        return all(coverage(face).issuperset(letters) for face in self.faces)

    @property
    def commonness(self) -> float:
        """How often the family should appear: that of its commonest face."""
        return max((face.commonness for face in self.faces), default=1.0)


def compiler() -> Any:
    """The `typst.Compiler` of this process, with the system's fonts and the embedded ones.

    Raises:
        MissingExtra: typst is not installed.
    """
    return _compiler()[0]


@cache
def _compiler() -> tuple[Any, list[Any]]:
    try:
        import typst
    except ImportError as error:
        raise MissingExtra("drawing tables, formulas and pages", "train") from error
    fonts = typst.Fonts()
    return typst.Compiler(font_paths=fonts), fonts.fonts()


def family_names() -> frozenset[str]:
    """All families that typst knows on this machine, checked or not.

    Raises:
        MissingExtra: typst is not installed.
    """
    return frozenset(info.family for info in _compiler()[1])


def draw(source: str, ppi: float) -> NDArray[np.uint8]:
    """The first page of a typst document as grey [H, W], 255 = paper.

    Raises:
        MissingExtra: typst is not installed.
        UsageError: typst refuses the source; the message has its diagnostic.
    """
    try:
        pages = compiler().compile(source.encode(), format="png", ppi=ppi)
    except RuntimeError as error:
        detail = getattr(error, "diagnostic", "") or str(error)
        raise UsageError(f"typst refuses a generated document:\n{detail}") from error
    with Image.open(io.BytesIO(pages[0] if isinstance(pages, list) else pages)) as image:
        page = image.convert("RGBA")
        paper = Image.new("RGBA", page.size, "white")
        return np.asarray(Image.alpha_composite(paper, page).convert("L"))


def quote(text: str) -> str:
    """A typst string literal: in code and math it stands for exactly this text, no markup, no smart quotes."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def families(fonts: Iterable[FontSpec]) -> list[TypstFamily]:
    """The families that typst may be asked for, given the faces that were found usable; sorted by name.

    A family is left out if typst could choose a face of it that is not among `fonts` (small capitals, broken ones).
    Without any, the embedded text family is the only one.
    """
    return list(_families(tuple(fonts)))


@lru_cache(maxsize=16)
def _families(fonts: tuple[FontSpec, ...]) -> tuple[TypstFamily, ...]:
    usable = {(str(Path(font.path).resolve()), font.index): font for font in fonts if font.path}
    # The same face in another format or folder counts as found.
    twins = {(Path(path).stem.casefold(), index): font for (path, index), font in usable.items()}
    groups: dict[str, list[Any]] = defaultdict(list)
    for info in _compiler()[1]:
        groups[info.family].append(info)
    found = []
    for name, infos in sorted(groups.items()):
        faces: dict[FontSpec, Any] = {}
        for info in infos:
            path = Path(info.path).resolve() if info.path else Path()
            match = usable.get((str(path), info.index)) or twins.get((path.stem.casefold(), info.index))
            if match is None:
                break
            faces[match] = info
        else:
            normal = {f: i for f, i in faces.items() if abs(i.stretch - 1) < 0.01}
            weights = {info.weight for info in normal.values() if info.style == "normal"}
            if weights & {400, 450, 500}:
                found.append(TypstFamily(name, tuple(normal), bold=bool(weights & {600, 700, 800})))
    return tuple(found) or (TypstFamily(EMBEDDED_TEXT),)
