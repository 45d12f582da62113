"""Lists as text: one item a line, bullets and numbers as marks, nesting by indentation."""

from __future__ import annotations

import re
from dataclasses import dataclass

_BULLET = re.compile(r"(?:[-*+\u2022\u2023\u25e6\u25aa\u25cf\u25cb\u2013\u00b7])\s+")
_NUMBERED = re.compile(r"(\d{1,9}[.)])\s+")
# Marks that Markdown and HTML have no number for: they stay in the text.
_LABEL = re.compile(r"(?:\(\d{1,3}\)|\[\d{1,3}\]|\(?[a-z]\))\s+")


@dataclass(frozen=True)
class ListItem:
    """One item: how deep it is nested (from 0), its number with its mark (`3.`, `3)`), or "", and its text."""

    depth: int
    number: str
    text: str


def is_marked(line: str) -> bool:
    """True if a line begins with a bullet or a number, as a list item does."""
    line = line.lstrip()
    return bool(_BULLET.match(line) or _NUMBERED.match(line) or _LABEL.match(line))


def read_list(content: str) -> list[ListItem]:
    """The items of a list region.

    A line without a mark continues the item above it, unless no line has one: then every line is an item. An item
    that is set in deeper than the one above, by two spaces or more, is nested in it.
    """
    lines = [line for line in content.splitlines() if line.strip()]
    if not any(is_marked(line) for line in lines):
        return [ListItem(0, "", line.strip()) for line in lines]
    items: list[ListItem] = []
    indents: list[int] = []
    for line in lines:
        text = line.strip()
        bullet, number = _BULLET.match(text), _NUMBERED.match(text)
        if items and not is_marked(text):
            items[-1] = ListItem(items[-1].depth, items[-1].number, f"{items[-1].text} {text}".strip())
            continue
        indent = len(line.expandtabs(4)) - len(line.expandtabs(4).lstrip())
        while len(indents) > 1 and indent < indents[-1] - 1:
            indents.pop()
        if not indents or indent > indents[-1] + 1:
            indents.append(indent)
        mark = bullet or number
        items.append(ListItem(len(indents) - 1, number[1] if number else "", text[mark.end() :] if mark else text))
    return items


def list_items(content: str) -> list[str]:
    """The items of a list region as flat texts, their bullets taken off and their numbers kept."""
    return [f"{item.number} {item.text}".strip() for item in read_list(content)]
