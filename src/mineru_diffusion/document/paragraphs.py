"""Lines to paragraphs: hyphens at line ends resolved, spaces where the script has them, no dictionary needed."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

_SOFT_HYPHEN = "\u00ad"
_HYPHENS = ("-", "\u2010", _SOFT_HYPHEN)
_DASHES = ("\u2013", "\u2014", "\u2011")
_TERMINAL = frozenset(".!?:;\u3002\uff01\uff1f\uff1a\uff1b\u2026")
_CLOSERS = "\"')]}\u201d\u2019\u00bb\u300d\u300f\uff09"

# The hyphen of "pre- and post-war" stands for a part that comes later. "and" may also end a broken word ("st-and"),
# so that in English the other half must have its hyphen too.
_SUSPENDED = re.compile(r"(?:(?:and|or|nor|to)\s+[^\W_]+[-\u2010]|(?:und|oder|bis|et|ou)\s)", re.IGNORECASE)

_WORD = re.compile(r"[^\W_]+(?:[-\u2010][^\W_]+)*")
_HEAD = re.compile(r"[^\W_]+(?:[-\u2010'\u2019][^\W_]+)*")
_TAIL = re.compile(r"(?:[^\W_]+[-\u2010'\u2019])*[^\W_]+(?=[-\u2010]$)")


def join_lines(lines: Sequence[str]) -> str:
    """The lines of one paragraph as one line of text.

    A hyphen at a line's end is taken out where it only breaks a word (`infor-`, `mation`) and stays where it belongs
    to the word: other hyphens in the word (`state-of-the-`, `art`), a capital or digit after it, a single letter or
    an acronym before it, or the hyphenated word elsewhere in the same lines. Chinese and Japanese lines are joined
    without a space.
    """
    stripped = [text for line in lines if (text := line.strip())]
    if not stripped:
        return ""
    known = {word.lower().replace("\u2010", "-") for line in stripped for word in _WORD.findall(line)}
    joined = stripped[0]
    for line in stripped[1:]:
        joined = _join_two(joined, line, known)
    return joined


def _join_two(before: str, after: str, known: set[str]) -> str:
    last = before[-1]
    if last == _SOFT_HYPHEN:
        return before[:-1] + after
    if last in _HYPHENS:
        keep, space = _hyphen_fate(before, after, known)
        return (before if keep else before[:-1]) + (" " if space else "") + after
    if last in _DASHES and len(before) > 1 and not before[-2].isspace():
        return before + after
    if _is_unspaced(last) and _is_unspaced(after[0]):
        return before + after
    return f"{before} {after}"


def _hyphen_fate(before: str, after: str, known: set[str]) -> tuple[bool, bool]:
    """For a line that ends in a hyphen: is the hyphen kept, and does a space follow it?"""
    tail, head = _TAIL.search(before), _HEAD.match(after)
    if tail is None or head is None:
        # A dash, a minus or a list mark, unless it is glued to both sides.
        return True, tail is None or not after[0].isalnum()
    left, right = tail.group(), head.group()
    if _SUSPENDED.match(after):
        return True, True
    if not (left[-1].isalpha() and right[0].islower()):
        return True, False
    if f"{left}-{right}".lower().replace("\u2010", "-") in known:
        return True, False
    if f"{left}{right}".lower() in known:
        return False, False
    is_compound = any(mark in part for part in (left, right) for mark in ("-", "\u2010"))
    return is_compound or len(left) == 1 or (left.isupper() and len(left) > 1), False


def _is_unspaced(char: str) -> bool:
    """True for characters of scripts that are written without spaces between words, and their punctuation."""
    code = ord(char)
    if 0x3000 <= code <= 0x30FF or 0xFF00 <= code <= 0xFF60:
        return True
    return 0x2E80 <= code <= 0x9FFF or 0xF900 <= code <= 0xFAFF or 0x20000 <= code <= 0x3FFFF


def is_continued(before: str, after: str) -> bool:
    """True if a paragraph clearly goes on in the next piece.

    That is: it has no terminal punctuation, and the next piece begins with a small letter, or with any letter of a
    script without small letters, or the last word is broken by a hyphen or followed by a comma. Meant for pieces in
    two columns or on two pages; a few words only are never taken to be continued.
    """
    before, after = before.rstrip(), after.lstrip()
    if not before or not after or _length(before) < 4:
        return False
    end = before.rstrip(_CLOSERS)
    if not end or end[-1] in _TERMINAL:
        return False
    first = unicodedata.category(after[0])
    if first == "Ll":
        return True
    if first == "Lo":
        # A heading or caption in such a script has no mark of its own: only long pieces count.
        return _length(before) >= 12
    broken = before[-1] in _HYPHENS and len(before) > 1 and before[-2].islower()
    return (broken or end[-1] == ",") and first in ("Lu", "Nd")


def _length(text: str) -> int:
    """Words; in scripts without spaces between words, pairs of characters."""
    return max(len(text.split()), sum(map(_is_unspaced, text)) // 2)
