"""Formulas inside running text: where they are, and which dollars are only money."""

from __future__ import annotations

import re
from collections.abc import Iterator

# Formulas as models write them; dollars only where the content looks like mathematics and not like two prices.
_MATH = re.compile(
    r"(?<!\\)\\\((?P<paren>.+?)(?<!\\)\\\)"
    r"|(?<!\\)\\\[(?P<bracket>.+?)(?<!\\)\\\]"
    r"|(?<![\\$])\$\$(?P<double>[^$]+)\$\$(?!\$)"
    r"|(?<![\\$\w])\$(?P<dollar>[^\s$](?:[^$\n]*[^\s$\\])?)\$(?![\d$])",
    re.DOTALL,
)
_MATHEMATICAL = re.compile(r"[\\^_{}=+<>|]|^[A-Za-z]'*$")


def split_math(text: str) -> Iterator[tuple[bool, str]]:
    """Pieces of a text in order, as (is a formula, piece); formulas come without delimiters, on one line."""
    position = 0
    for match in _MATH.finditer(text):
        dollar = match["dollar"]
        if dollar is not None and not _MATHEMATICAL.search(dollar):
            continue
        body = next(group for group in match.groups() if group is not None)
        if match.start() > position:
            yield False, text[position : match.start()]
        yield True, " ".join(body.split())
        position = match.end()
    if position < len(text):
        yield False, text[position:]
