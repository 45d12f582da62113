"""What a file is, told by its first bytes. In: the head of a file. Out: the name of its kind, or None."""

from __future__ import annotations

import re
from collections.abc import Mapping

#: Bytes of a file that are needed to tell its kind: readers accept a PDF header anywhere in the first kilobyte.
HEAD_BYTES = 1024

_IMAGES: Mapping[str, re.Pattern[bytes]] = {
    name: re.compile(pattern, re.DOTALL)
    for name, pattern in {
        "PNG": rb"\x89PNG\r\n\x1a\n",
        "JPEG": rb"\xff\xd8\xff",
        "GIF": rb"GIF8[79]a",
        "TIFF": rb"II[*+]\0|MM\0[*+]",
        "BMP": rb"BM.{4}\0\0\0\0",
        "WEBP": rb"RIFF.{4}WEBP",
        "JPEG2000": rb"\0\0\0\x0cjP  \r\n\x87\n|\xff\x4f\xff\x51",
        "PPM": rb"P[1-7fF]\s",
        "AVIF": rb".{4}ftypavi[fs]",
        "HEIF": rb".{4}ftyp(?:hei[cxms]|hev[cxms]|mif1|mif2|msf1)",
        "PSD": rb"8BPS\0\x01",
        "QOI": rb"qoif",
        "PCX": rb"\x0a[\0-\x05]\x01[\x01\x02\x04\x08]",
        "ICO": rb"\0\0\x01\0[^\0]\0",
        "SGI": rb"\x01\xda[\0\x01][\x01\x02]",
    }.items()
}

#: The decoders that Pillow may use. Others have no signature worth the name, or start another program (EPS).
IMAGE_FORMATS = (*_IMAGES, "DIB", "MPO")

#: Usual suffixes of what can be read, in lower case. Files in folders are taken by suffix or by content.
SUPPORTED_SUFFIXES = frozenset(
    {
        *(".pdf", ".png", ".apng", ".jpg", ".jpeg", ".jpe", ".jfif", ".jp2", ".j2k", ".jpf", ".jpx", ".tif", ".tiff"),
        *(".bmp", ".dib", ".gif", ".webp", ".ppm", ".pgm", ".pbm", ".pnm", ".pfm", ".avif", ".heic", ".heif", ".hif"),
        *(".psd", ".qoi", ".pcx"),
    }
)


def file_kind(head: bytes) -> str | None:
    """`PDF`, one of Pillow's format names, or None for anything else.

    Args:
        head: the first `HEAD_BYTES` bytes, or all of a shorter file.
    """
    for name, pattern in _IMAGES.items():
        if pattern.match(head):
            return name
    return "PDF" if b"%PDF-" in head[:HEAD_BYTES] else None
