"""How near a reading is to a reference. In: two texts. Out: a number, and the differences as HTML."""

from __future__ import annotations

import re

from rapidfuzz.distance import Levenshtein

from mineru_diffusion.demo.markup import safe

_TAG = re.compile(r"<[^>]+>")
_MARKS = re.compile(r"^\s*(?:[-*•]|#{1,6})\s+", re.MULTILINE)
_LONGEST = 20_000
"""Characters of a text that are compared; a page has fewer."""


def plain(text: str) -> str:
    """Text without tags, list marks and line ends, which are matters of layout."""
    return " ".join(_MARKS.sub("", _TAG.sub(" ", text)).split())[:_LONGEST]


def character_accuracy(text: str, reference: str) -> float | None:
    """1 minus the edit distance over the reference's length, at least 0; None without a reference."""
    text, reference = plain(text), plain(reference)
    if not reference:
        return None
    return max(0.0, 1.0 - Levenshtein.distance(text, reference) / len(reference))


def difference_html(text: str, reference: str) -> str:
    """The text, with what the reference has instead struck out and what it has not underlined."""
    text, reference = plain(text), plain(reference)
    parts: list[str] = []
    for op in Levenshtein.opcodes(reference, text):
        old, new = reference[op.src_start : op.src_end], text[op.dest_start : op.dest_end]
        if op.tag == "equal":
            parts.append(safe(new))
            continue
        if old:
            parts.append(f"<del>{safe(old)}</del>")
        if new:
            parts.append(f"<ins>{safe(new)}</ins>")
    return "".join(parts)
