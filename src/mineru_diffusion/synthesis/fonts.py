"""Font faces of this machine that can draw Latin text, split by family into training and held-out faces.

In: the system's font folders. Out: a sorted list of FontSpec. With no font installed, the one that Pillow brings.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path

from PIL import ImageFont

from mineru_diffusion.errors import UsageError
from mineru_diffusion.synthesis.charset import CHARSET
from mineru_diffusion.synthesis.faces import FALLBACK_FAMILY, Face, FontSpec

__all__ = ["FALLBACK", "FontSpec", "coverage", "discover_fonts", "select_fonts"]

_CORE = "AQaegpyz019.,()"
_PROBE_SIZE = 16
_SUFFIXES = frozenset({".ttf", ".otf", ".ttc", ".otc"})
# The last ones are TeX's own encodings under Unicode's numbers: matplotlib's cmr10 draws "¡" for "<".
_NOT_TEXT = re.compile(
    r"emoji|symbol|dingbat|icon|awesome|music|math|braille|barcode|ornament|initials?\b|signs|d050000l"
    r"|\blast ?resort|small ?caps|caps\b|lmsc|outline|shadow|stencil|cmex|cmsy|cmmi|powerline|swash|sketch|sc\b"
    r"|keyboard|inverted|solothurn|^cm(?:b|r|ss|ti|tt)10\b",
    re.IGNORECASE,
)
_DECORATIVE = re.compile(
    r"hand|script|joscelyn|comic|dancing|lobster|humor|dkg|chancery|chancellor|z003|chorus|cursive|brush|fantasy|sixtyfour|3270"
    r"|oldania|mekanus|unzial|uncial|gothic titl|fraktur|blackletter|dunhill|fibonacci|funny|rustic"
    r"|classical|variable|vintage|ethiopi|upright|proggy|terminus|ocr|swashes|initial",
    re.IGNORECASE,
)


FALLBACK = FontSpec("", 0, FALLBACK_FAMILY, "Regular")


def discover_fonts(extra_dirs: Sequence[str | Path] = ()) -> list[FontSpec]:
    """All usable faces: fontconfig's list if there is one, else the usual folders; matplotlib's fonts; `extra_dirs`.

    Symbol, emoji, small-capital and broken faces, and faces that lack a letter or digit, are left out. Never empty:
    without any other font the list holds the one that Pillow brings. Sorted, so that equal machines give equal lists.
    """
    return list(_discover(tuple(str(d) for d in extra_dirs)))


def select_fonts(fonts: Iterable[FontSpec], split: str) -> list[FontSpec]:
    """The faces of one split, "train" or "heldout". A split that would be empty gets all faces instead.

    Raises:
        UsageError: unknown split.
    """
    if split not in ("train", "heldout"):
        raise UsageError(f"unknown split {split!r}: use 'train' or 'heldout'")
    every = list(fonts)
    return [font for font in every if font.held_out == (split == "heldout")] or every


@cache
def coverage(font: FontSpec) -> frozenset[str]:
    """CHARSET characters that the face has a picture for."""
    return frozenset(filter(Face(font, _PROBE_SIZE).covers, CHARSET))


@lru_cache(maxsize=8)
def _discover(extra_dirs: tuple[str, ...]) -> tuple[FontSpec, ...]:
    faces = {(f.path, f.index): f for f in (*_from_fontconfig(), *_from_folders([*_bundled_dirs(), *extra_dirs]))}
    if not faces:
        faces = {(f.path, f.index): f for f in _from_folders(_system_dirs())}
    usable: dict[tuple[str, str], FontSpec] = {}
    for face in sorted(faces.values(), key=lambda f: (f.family, f.style, f.path, f.index)):
        if (face.family, face.style) not in usable and not _NOT_TEXT.search(face.name) and _is_latin(face):
            usable[face.family, face.style] = face
    return tuple(usable.values()) or (FALLBACK,)


def _from_fontconfig() -> list[FontSpec]:
    program = shutil.which("fc-list")
    if program is None:
        return []
    pattern = "%{file}\t%{index}\t%{family[0]}\t%{style[0]}\n"
    listing = subprocess.run([program, "--format", pattern], capture_output=True, text=True, timeout=60, check=False)
    faces = []
    for line in listing.stdout.splitlines():
        path, index, family, style = (line.split("\t") + [""] * 4)[:4]
        # Higher bits of the index name instances of variable fonts, which FreeType's plain face cannot show.
        if Path(path).suffix.lower() in _SUFFIXES and index.isdigit() and int(index) < 0x10000:
            faces.append(_spec(path, int(index), family, style))
    return faces


def _from_folders(folders: Iterable[str | Path]) -> list[FontSpec]:
    faces = []
    for folder in folders:
        for path in sorted(Path(folder).expanduser().rglob("*")):
            if path.suffix.lower() not in _SUFFIXES:
                continue
            try:
                family, style = ImageFont.truetype(str(path), 16, layout_engine=ImageFont.Layout.BASIC).getname()
            except OSError:
                continue
            faces.append(_spec(str(path), 0, family or path.stem, style or ""))
    return faces


def _spec(path: str, index: int, family: str, style: str) -> FontSpec:
    return FontSpec(path, index, family, style, decorative=bool(_DECORATIVE.search(f"{family} {style}")))


def _bundled_dirs() -> list[Path]:
    matplotlib = find_spec("matplotlib")
    if matplotlib is None or matplotlib.origin is None:
        return []
    return [Path(matplotlib.origin).parent / "mpl-data" / "fonts" / "ttf"]


def _system_dirs() -> list[str]:
    if sys.platform == "darwin":
        return ["/System/Library/Fonts", "/Library/Fonts", "~/Library/Fonts"]
    if sys.platform == "win32":
        return ["C:/Windows/Fonts"]
    return ["/usr/share/fonts", "/usr/local/share/fonts", "~/.fonts", "~/.local/share/fonts"]


def _is_latin(spec: FontSpec) -> bool:
    try:
        face = Face(spec, _PROBE_SIZE)
    except (OSError, ValueError):
        return False
    if not 0 < face.ascent + face.descent < 4 * _PROBE_SIZE or not face.covers(_CORE):
        return False
    # Small capitals drawn for small letters (then "p" ends on the baseline) would hide the case from the reader.
    return all((g := face.glyph(c)) is not None and g.top + len(g.picture) >= 2 for c in "pgy")
