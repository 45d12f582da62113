"""File names that every system accepts, and keys that tell which names would collide on some system."""

from __future__ import annotations

import hashlib
import re
import unicodedata

#: Bytes of a stem at most: with the longest ending and a temporary suffix it stays far below the usual 255.
MAX_STEM_BYTES = 120

# Besides what systems forbid: marks that turn the direction of writing, so that a name reads as another one.
_FORBIDDEN = re.compile(r'[<>:"/\\|?*\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028-\u202e\u2066-\u2069\ufeff]')
_RESERVED = re.compile(
    r"(?:con|prn|aux|nul|conin\$|conout\$|com[0-9\u00b9\u00b2\u00b3]|lpt[0-9\u00b9\u00b2\u00b3])\s*(?:\.|$)", re.I
)


def safe_stem(name: str, *, max_bytes: int = MAX_STEM_BYTES) -> str:
    """A file name's stem that is legal on Windows, macOS and Linux.

    Composed to Unicode form C; forbidden characters become `_`; names that devices own on Windows get a `_` in
    front. A name longer than `max_bytes` in UTF-8 is cut between characters and ends in a hash of the whole.
    """
    stem = _FORBIDDEN.sub("_", unicodedata.normalize("NFC", name)).strip().rstrip(". ")
    if stem.startswith("."):
        stem = "_" + stem[1:]
    if not stem or not stem.strip("_. "):
        stem = "document"
    if _RESERVED.match(stem):
        stem = "_" + stem
    if len(stem.encode()) > max_bytes:
        tail = "-" + short_hash(name)
        stem = _cut(stem, max_bytes - len(tail)).rstrip(". ") + tail
    return stem


def with_suffix(stem: str, suffix: str, *, max_bytes: int = MAX_STEM_BYTES) -> str:
    """`stem` + `suffix`, the stem cut if both together are too long."""
    return _cut(stem, max_bytes - len(suffix.encode())).rstrip(". ") + suffix


def _cut(text: str, max_bytes: int) -> str:
    cut = text.encode()[:max_bytes].decode(errors="ignore")
    # An accent must not part from its letter.
    while len(cut) < len(text) and cut and unicodedata.combining(text[len(cut)]):
        cut = cut[:-1]
    return cut


def short_hash(text: str) -> str:
    """Eight hexadecimal digits that stand for a text."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:8]


def collision_key(name: str) -> str:
    """Equal for names that some file system takes to be one: case and Unicode form do not count."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
