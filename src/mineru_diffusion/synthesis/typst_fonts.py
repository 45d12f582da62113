"""What the truth of a typeset page needs to know of a font family: the characters it lacks, how far its ink reaches
above and below the baseline, and whether all its characters are equally wide.

In: families as `typst_engine` finds them. Out: facts, and a family drawn at random.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

import numpy as np

from mineru_diffusion.synthesis.faces import face
from mineru_diffusion.synthesis.fonts import discover_fonts, select_fonts
from mineru_diffusion.synthesis.typst_engine import TypstFamily, families

EMBEDDED_MONO = TypstFamily("DejaVu Sans Mono")

_MONO = re.compile(r"mono|courier|code|cousine|typewriter|hack\b|inconsolata|agave|3270|cursor|fixed", re.IGNORECASE)
_TALL, _DEEP = "bdfklAT(", "gjpqyQ("
_MEASURE, _PROBE = 64, 16


@cache
def split_families(split: str) -> tuple[TypstFamily, ...]:
    """The families of a split, sorted by name: at least one proportional and one mono.

    Raises:
        UsageError: unknown split.
        MissingExtra: typst is not installed.
    """
    found = families(select_fonts(discover_fonts(), split))
    return (*found, *(() if any(map(is_mono, found)) else (EMBEDDED_MONO,)))


def is_mono(family: TypstFamily) -> bool:
    """Whether the family's name says that all characters are equally wide."""
    return bool(_MONO.search(family.name))


class FamilyChoice:
    """Families to draw from, by commonness.

    Args:
        families: at least one proportional and one mono.
    """

    def __init__(self, families: Sequence[TypstFamily]) -> None:
        groups = [[f for f in families if is_mono(f) == mono] for mono in (False, True)]
        self._groups = [(group, np.cumsum([f.commonness for f in group])) for group in groups]

    def draw(self, rng: np.random.Generator, *, mono: bool = False) -> TypstFamily:
        """One family, proportional or mono."""
        group, ends = self._groups[mono]
        return group[int(np.searchsorted(ends, rng.random() * ends[-1]))]


def kept(family: TypstFamily, text: str) -> str:
    """The text without characters that a face of the family lacks, and without the spaces this leaves over."""
    known = _known(family)
    for character in set(text).difference(known):
        known[character] = all(face(spec, _PROBE).covers(character) for spec in family.faces)
    if all(map(known.__getitem__, text)):
        return text
    return " ".join("".join(filter(known.__getitem__, text)).split())


@cache
def _known(family: TypstFamily) -> dict[str, bool]:
    """Filled as characters are met: drawing the whole character set of every face would take longest."""
    return {}


@cache
def reach(family: TypstFamily) -> tuple[float, float]:
    """How far ink goes above and below the baseline, in em; only accents on capitals go further."""
    above, below = [0.0], [0.0]
    for spec in family.faces[:4]:
        drawn = face(spec, _MEASURE)
        above += (-g.top / _MEASURE for c in _TALL if (g := drawn.glyph(c)) is not None)
        below += ((g.top + len(g.picture)) / _MEASURE for c in _DEEP if (g := drawn.glyph(c)) is not None)
    return (max(above), max(below)) if family.faces else (0.76, 0.24)
