"""The characters that the tiny model reads and writes, and how any other text is brought into that set.

In: any string. Out: a string of CHARSET characters, newlines, and U+FFFD where something cannot be written.
"""

from __future__ import annotations

import unicodedata

_ASCII = "".join(map(chr, range(0x20, 0x7F)))
_LATIN_1 = "".join(chr(c) for c in range(0xA1, 0x100) if c not in (0xAD, 0xB5))
_LATIN_EXTENDED = "ĀāĂăĄąĆćČčĎďĐđĒēĖėĘęĚěĞğĢģĪīĮįİıĶķĻļĽľŁłŃńŅņŇňŌōŐőŒœŘřŚśŞşŠšŤťŪūŮůŰűŲųŴŵŶŷŸŹźŻżŽžȘșȚț"
_PUNCTUATION = "–—‘’‚“”„…•†‡‰‹›€™"
_SYMBOLS = "→←≤≥≠≈−∞"
_GREEK = "αβγδεθλμπσφωΔΣΩ"

CHARSET: str = _ASCII + _LATIN_1 + _LATIN_EXTENDED + _PUNCTUATION + _SYMBOLS + _GREEK
"""Every character once, the space first. The micro sign is written as the Greek letter (both look the same)."""

REPLACEMENT = "\ufffd"
"""Stands for a character outside the set."""

_KNOWN = frozenset(CHARSET) | {"\n", REPLACEMENT}

# Same picture, other code point: one spelling each, or the truth would hold differences that no image shows.
_ALIASES = {
    "µ": "μ", "ﬀ": "ff", "ﬁ": "fi", "ﬂ": "fl", "ﬃ": "ffi", "ﬄ": "ffl", "ﬅ": "st", "ﬆ": "st",
    "Ĳ": "IJ", "ĳ": "ij", "Ţ": "Ț", "ţ": "ț", "ſ": "s", "Ð": "Ð", "ŀ": "l·", "Ŀ": "L·", "ŉ": "’n",
    "‐": "-", "‑": "-", "⁃": "-", "‒": "–", "―": "—", "─": "—", "﹣": "-", "－": "-",
    "ʼ": "’", "ʹ": "'", "′": "'", "″": '"', "‛": "‘", "‟": "“", "ˈ": "'",
    "∙": "·", "⋅": "·", "‧": "·", "●": "•", "∆": "Δ", "∑": "Σ", "ϕ": "φ", "ϵ": "ε", "∕": "/", "⁄": "/",
    "∗": "*", "∼": "~", "≦": "≤", "≧": "≥", "∶": ":", "˚": "°", "⩽": "≤", "⩾": "≥",
    "\t": " ", "\r": "\n", "\v": "\n", "\f": "\n", "\u0085": "\n", "\u2028": "\n", "\u2029": "\n",
}  # fmt: skip
_TABLE = {ord(key): value for key, value in _ALIASES.items()}


def normalise(text: str) -> str:
    """Bring text into the set: NFC, ligatures spelt out, every kind of space as U+0020, look-alikes as one character.

    Newlines stay. Invisible characters (soft hyphen, zero-width, other controls) are dropped; every other character
    outside CHARSET becomes U+FFFD. Applying it twice changes nothing more.
    """
    if text.isascii() and text.isprintable():
        return text
    text = unicodedata.normalize("NFC", text.replace("\r\n", "\n")).translate(_TABLE)
    return "".join(filter(None, map(_map_character, unicodedata.normalize("NFC", text))))


def _map_character(character: str) -> str:
    if character in _KNOWN:
        return character
    category = unicodedata.category(character)
    if category == "Zs":
        return " "
    if category in ("Cc", "Cf"):
        return ""
    return REPLACEMENT
