"""Lines of one region to paragraphs, list items or code, by where they stand and how they begin."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from mineru_diffusion.document.paragraphs import join_lines
from mineru_diffusion.document.types import BBox
from mineru_diffusion.parsing.lines import TextLine

_BULLET = re.compile(r"^[•‣⁃◦▪■●○·*–—-]\s+(?=\S)")
_NUMBER = re.compile(r"^(?:\(?(\d{1,3})[.)]|\[(\d{1,3})\])\s+(?=\S)")
_LETTER = re.compile(r"^(?:\(([a-z])\)|([a-z])\))\s+(?=\S)")
_SENTENCE_END = re.compile(r"[.!?:;…][\"'”’»)\]]*$")
_STATEMENT = re.compile(r"(?:[{}]|\)\s*;?|[=\w\])\"']\s*;)$")
_LONE_STATEMENT = re.compile(r"(?:[{};]|\w\(.*\))$")
_GOES_ON = (",", ";", "-", "–", "&")
RAGGED = 0.35
"""From this part of short lines on, the right edge is ragged and a short line does not end a paragraph."""
STUB = 0.6
"""In justified text, a line that ends before this part of the width is the last of its paragraph."""


def paragraphs(lines: Sequence[TextLine], texts: Sequence[str], *, one: bool = False) -> list[str]:
    """Join lines to paragraphs.

    A paragraph begins at an indented line, after a larger gap, and in justified text after a short line that ends a
    sentence, or at a capital after a very short one (a heading, mostly). Where most lines are indented (a hanging
    indent), it begins at the lines that are not.

    Args:
        lines: the geometry of the lines; texts: what they say, as many.
        one: never begin a new paragraph.
    """
    groups: list[list[str]] = []
    hanging = _is_hanging(lines)
    stubs = _stubs(lines)
    # Headings among justified text are short, but far shorter than a ragged edge makes lines; verse is short all over.
    uneven = sum(line.short for line in lines) - (sum(stubs) if sum(stubs) <= 0.5 * len(lines) else 0)
    ragged = uneven > RAGGED * len(lines)
    stubs = [False] * len(lines) if ragged or hanging else stubs
    for i, (line, text) in enumerate(zip(lines, texts, strict=True)):
        begins = i and _begins(line, lines[i - 1], texts[i - 1], hanging, ragged)
        headed = i and stubs[i - 1] and text[:1].isupper() and not texts[i - 1].rstrip().endswith(_GOES_ON)
        if i and (one or not (begins or headed)):
            groups[-1].append(text)
        else:
            groups.append([text])
    return [join_lines(group) for group in groups]


def _begins(line: TextLine, before: TextLine, text_before: str, hanging: bool, ragged: bool) -> bool:
    if line.spaced:
        return True
    if hanging:
        return not line.indented
    if line.indented and not before.indented:
        return True
    return before.short and not ragged and line.column == before.column and bool(_SENTENCE_END.search(text_before))


def _stubs(lines: Sequence[TextLine]) -> list[bool]:
    """Lines that end long before the right edge of their column."""
    out = []
    for line in lines:
        column = [other.box for other in lines if other.column == line.column]
        left, right = min(box[0] for box in column), max(box[2] for box in column)
        out.append(line.short and line.box[2] < left + STUB * (right - left))
    return out


def is_itemised(lines: Sequence[TextLine], texts: Sequence[str]) -> bool:
    """The lines are plainly items: marked, or with a hanging indent."""
    return bool(_marked(texts)) or _is_hanging(lines)


def _is_hanging(lines: Sequence[TextLine]) -> bool:
    return len(lines) >= 3 and not lines[0].indented and sum(line.indented for line in lines) > 0.5 * len(lines)


def split_lists(lines: Sequence[TextLine], texts: Sequence[str]) -> list[tuple[bool, int, int]]:
    """Part a region into running text and lists: (is a list, first line, last line + 1), top to bottom.

    A list has two or more lines that begin with a bullet, or with numbers or letters that count up. Lines between its
    marked lines belong to it, and those after the last one that are set in deeper than the marks.
    """
    starts = _marked(texts)
    if not starts:
        return [(False, 0, len(texts))]
    marks = max(lines[i].box[0] for i in starts)
    end = starts[-1] + 1
    while end < len(lines) and lines[end].box[0] > marks + 0.5 * lines[end].ink_height and not lines[end].spaced:
        end += 1
    parts = [(False, 0, starts[0]), (True, starts[0], end), (False, end, len(texts))]
    return [part for part in parts if part[1] < part[2]]


def list_items(lines: Sequence[TextLine], texts: Sequence[str]) -> list[str]:
    """The items of a list: from mark to mark, else by its hanging indent, else one a line.

    Items whose mark is set in deeper than those above begin with two spaces for each step.
    """
    starts = _marked(texts)
    marked = bool(starts)
    if not starts:
        hanging = _is_hanging(lines)
        starts = [i for i, line in enumerate(lines) if not (hanging and line.indented)]
    bounds = [*sorted({0, *starts}), len(texts)]
    items = [join_lines(list(texts[a:b])) for a, b in pairwise(bounds)]
    depths = _depths([lines[a] for a in bounds[:-1]]) if marked else [0] * len(items)
    return ["  " * depth + item for depth, item in zip(depths, items, strict=True)]


def _depths(firsts: Sequence[TextLine]) -> list[int]:
    """How deep each item is nested, by where its first line begins; another column begins anew."""
    depths: list[int] = []
    edges: list[float] = []
    column = firsts[0].column if firsts else 0
    for line in firsts:
        left, step = line.box[0], 0.8 * line.ink_height
        if line.column != column:
            column, edges = line.column, []
        while len(edges) > 1 and left < edges[-1] - step:
            edges.pop()
        if not edges or left > edges[-1] + step:
            edges.append(left)
        depths.append(len(edges) - 1)
    return depths


def _marked(texts: Sequence[str]) -> list[int]:
    """Lines that begin an item, by the first marker family that has at least two."""
    bullets = [i for i, text in enumerate(texts) if _BULLET.match(text)]
    if len(bullets) >= 2:
        return bullets
    for pattern, value in ((_NUMBER, int), (_LETTER, ord)):
        found = [(i, value(next(g for g in m.groups() if g))) for i, t in enumerate(texts) if (m := pattern.match(t))]
        if len(found) >= 2 and all(b == a + 1 for (_, a), (_, b) in pairwise(found)):
            return [i for i, _ in found]
    return []


def looks_like_code(texts: Sequence[str]) -> bool:
    """Most of the lines end as statements do, and some of them with a bracket."""
    said = [text.strip() for text in texts if text.strip()]
    ends = sum(bool(_STATEMENT.search(text)) for text in said)
    return len(said) >= 3 and ends >= 0.6 * len(said) and any("{" in text or ");" in text for text in said)


def are_statements(texts: Sequence[str]) -> bool:
    """Every line ends as statements do and sentences do not: fit for single lines, which have no others to tell."""
    said = [text.strip() for text in texts if text.strip()]
    return bool(said) and all(_LONE_STATEMENT.search(text) for text in said)


def code_block(boxes: Sequence[BBox], texts: Sequence[str]) -> str:
    """Lines as they stand, with leading spaces for their indentation (letters of code are equally wide).

    Args:
        boxes: of the lines, in any unit; texts: what they say, as many.
    """
    if not boxes:
        return ""
    left = min(box[0] for box in boxes)
    widths = [(box[2] - box[0]) / len(t) for box, t in zip(boxes, texts, strict=True) if len(t) >= 4]
    width = median(widths) if widths else 0.0
    rows = []
    for box, text in zip(boxes, texts, strict=True):
        rows.append(" " * (round((box[0] - left) / width) if width else 0) + text)
    return "\n".join(rows)
