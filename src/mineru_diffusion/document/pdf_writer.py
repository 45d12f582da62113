"""PDFs made of page pictures with invisible text over them, written page by page.

Nothing of a page stays in memory, and the same input gives the same bytes: no library at hand streams its output,
writes text in any script without a font file, and leaves out dates and random identifiers. The structure follows
ISO 32000-1: pages (7.7.3), composite fonts (9.7), text rendering mode 3 (9.3.6).
"""

from __future__ import annotations

import io
import unicodedata
import zlib
from collections.abc import Iterable
from types import TracebackType
from typing import BinaryIO

from PIL import Image, ImageChops

from mineru_diffusion.document.glyphless import ADVANCE, ASCENT, DESCENT, UNITS_PER_EM, glyphless_font
from mineru_diffusion.document.text_layer import PlacedLine, char_advance

#: Longest side of a page in points (ISO 32000-1, annex C.2).
MAX_SIDE = 14400.0

# Numbers of the objects that every file has; pages and their parts come behind.
_CATALOG, _PAGES, _FONT, _CID_FONT, _DESCRIPTOR, _FONT_FILE, _CID_TO_GID, _TO_UNICODE, _INFO = range(1, 10)


class PictureTextPdf:
    """Writes a PDF to an open binary file; use it as a context manager, which completes the file.

    Args:
        file: where to; only written to, never read or searched.
        title: title of the document.
    """

    def __init__(self, file: BinaryIO, title: str) -> None:
        self._file = file
        self._at = 0
        self._offsets: dict[int, int] = {}
        self._next = _INFO + 1
        self._page_numbers: list[int] = []
        self._write(b"%PDF-1.5\n%\xe2\xe3\xcf\xd3\n")
        self._object(_CATALOG, f"<< /Type /Catalog /Pages {_PAGES} 0 R >>".encode())
        self._object(_INFO, b"<< /Title <feff" + title.encode("utf-16-be", "replace").hex().encode() + b"> >>")
        self._font()

    def __enter__(self) -> PictureTextPdf:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._finish()

    def add_page(self, image: Image.Image, size: tuple[float, float], lines: Iterable[PlacedLine]) -> None:
        """Add a page.

        Args:
            image: the page's picture; stored as JPEG.
            size: width and height of the page in points; scaled down if it is larger than a PDF allows.
            lines: its text, written invisibly over the picture.
        """
        scale = min(1.0, MAX_SIDE / max(*size, 1e-6))
        width, height = (max(side * scale, 1.0) for side in size)
        picture, content, page = range(self._next, self._next + 3)
        self._next += 3
        self._picture(picture, image)
        drawn = f"q {width:.2f} 0 0 {height:.2f} 0 0 cm /Page Do Q\nBT 3 Tr\n".encode()
        drawn += b"".join(_text_operators(line, width, height) for line in lines) + b"ET\n"
        self._stream(content, b"", drawn)
        self._object(
            page,
            (
                f"<< /Type /Page /Parent {_PAGES} 0 R /MediaBox [0 0 {width:.2f} {height:.2f}] /Contents {content} 0 R "
                f"/Resources << /XObject << /Page {picture} 0 R >> /Font << /Text {_FONT} 0 R >> >> >>"
            ).encode(),
        )
        self._page_numbers.append(page)

    def _picture(self, number: int, image: Image.Image) -> None:
        image = _as_grey_if_grey(image)
        buffer = io.BytesIO()
        image.save(buffer, format="JPEG", quality=80, optimize=True)
        space = "/DeviceGray" if image.mode == "L" else "/DeviceRGB"
        head = (
            f"/Type /XObject /Subtype /Image /Width {image.width} /Height {image.height} "
            f"/ColorSpace {space} /BitsPerComponent 8 /Filter /DCTDecode"
        )
        self._raw_stream(number, head.encode(), buffer.getvalue())

    def _font(self) -> None:
        base = "/BaseFont /Glyphless"
        self._object(
            _FONT,
            f"<< /Type /Font /Subtype /Type0 {base} /Encoding /Identity-H /DescendantFonts [{_CID_FONT} 0 R] "
            f"/ToUnicode {_TO_UNICODE} 0 R >>".encode(),
        )
        width = ADVANCE * 1000 // UNITS_PER_EM
        self._object(
            _CID_FONT,
            f"<< /Type /Font /Subtype /CIDFontType2 {base} /CIDSystemInfo << /Registry (Adobe) /Ordering (Identity) "
            f"/Supplement 0 >> /FontDescriptor {_DESCRIPTOR} 0 R /DW {width} "
            f"/CIDToGIDMap {_CID_TO_GID} 0 R >>".encode(),
        )
        self._object(
            _DESCRIPTOR,
            f"<< /Type /FontDescriptor /FontName /Glyphless /Flags 5 /FontBBox [0 {DESCENT} {width} {ASCENT}] "
            f"/ItalicAngle 0 /Ascent {ASCENT} /Descent {DESCENT} /CapHeight {ASCENT} /StemV 80 "
            f"/FontFile2 {_FONT_FILE} 0 R >>".encode(),
        )
        font = glyphless_font()
        self._stream(_FONT_FILE, f"/Length1 {len(font)}".encode(), font)
        self._stream(_CID_TO_GID, b"", b"\x00\x01" * 65536)
        self._stream(_TO_UNICODE, b"", _identity_cmap())

    def _finish(self) -> None:
        kids = " ".join(f"{number} 0 R" for number in self._page_numbers)
        self._object(_PAGES, f"<< /Type /Pages /Kids [{kids}] /Count {len(self._page_numbers)} >>".encode())
        start, count = self._at, self._next
        entries = b"".join(b"%010d 00000 n \n" % self._offsets[number] for number in range(1, count))
        self._write(b"xref\n0 %d\n0000000000 65535 f \n" % count + entries)
        self._write(f"trailer\n<< /Size {count} /Root {_CATALOG} 0 R /Info {_INFO} 0 R >>\n".encode())
        self._write(b"startxref\n%d\n%%%%EOF\n" % start)

    def _stream(self, number: int, head: bytes, data: bytes) -> None:
        self._raw_stream(number, head + b" /Filter /FlateDecode", zlib.compress(data, 9))

    def _raw_stream(self, number: int, head: bytes, data: bytes) -> None:
        self._object(number, b"<< %s /Length %d >>\nstream\n" % (head, len(data)) + data + b"\nendstream")

    def _object(self, number: int, body: bytes) -> None:
        self._offsets[number] = self._at
        self._write(b"%d 0 obj\n" % number + body + b"\nendobj\n")

    def _write(self, data: bytes) -> None:
        self._file.write(data)
        self._at += len(data)


def _as_grey_if_grey(image: Image.Image) -> Image.Image:
    """Pages without colour as grey pictures, a third smaller."""
    if image.mode != "RGB":
        return image if image.mode == "L" else image.convert("RGB")
    red, green, blue = image.split()
    colour = [
        ImageChops.difference(a, b).point(lambda value: 255 * (value > 4)) for a, b in ((red, green), (green, blue))
    ]
    grey = not any(part.getbbox() for part in colour)
    return green if grey else image


def _text_operators(line: PlacedLine, width: float, height: float) -> bytes:
    """One line word by word, each stretched to the room it has: viewers mark words, and letters differ in width."""
    x0, y0, x1, y1 = line.bbox
    left, right, top, bottom = x0 * width, x1 * width, height - y0 * height, height - y1 * height
    angle = line.angle % 360
    size = max((right - left) if angle % 180 else (top - bottom), 0.1)
    length = max((top - bottom) if angle % 180 else (right - left), 0.1)
    base = -DESCENT / UNITS_PER_EM * size
    # Where the writing begins on its base line, and in which direction it runs.
    x, y, dx, dy = {
        0: (left, bottom + base, 1, 0),
        90: (left + base, top, 0, -1),
        180: (right, top - base, -1, 0),
        270: (right - base, bottom, 0, 1),
    }.get(angle, (left, bottom + base, 1, 0))
    text = _visual(line.text)
    # Readers put words that are not upright, or not written to the right, in an order of their own.
    words = text.split(" ") if angle == 0 and text == line.text else [text]
    words = [*(f"{word} " for word in words[:-1]), words[-1] or " "]
    widths = [sum(map(char_advance, word)) or 0.1 for word in words]
    unit = length / sum(widths)
    out = [f"/Text {size:.2f} Tf\n"]
    for word, wide in zip(words, widths, strict=True):
        code = word.encode("utf-16-be", "replace").hex()
        natural = len(code) // 4 * ADVANCE / UNITS_PER_EM * size
        out.append(f"{dx} {dy} {-dy} {dx} {x:.2f} {y:.2f} Tm {100 * wide * unit / natural:.2f} Tz <{code}> Tj\n")
        x, y = x + dx * wide * unit, y + dy * wide * unit
    return "".join(out).encode()


def _visual(text: str) -> str:
    """Text in the order in which it stands on the page from left to right: readers turn Hebrew and Arabic back."""
    rightward = [unicodedata.bidirectional(char) for char in text]
    if not any(kind in ("R", "AL") for kind in rightward):
        return text
    words = text.split(" ")
    turned = [word[::-1] if any(unicodedata.bidirectional(c) in ("R", "AL") for c in word) else word for word in words]
    return " ".join(reversed(turned))


def _identity_cmap() -> bytes:
    """Character codes are UTF-16 units, so that any text can be written; ranges may not cross a high byte."""
    ranges = [f"<{high:02X}00> <{high:02X}FF> <{high:02X}00>" for high in range(256)]
    blocks = [ranges[start : start + 100] for start in range(0, 256, 100)]
    body = "\n".join(f"{len(block)} beginbfrange\n" + "\n".join(block) + "\nendbfrange" for block in blocks)
    return (
        "/CIDInit /ProcSet findresource begin\n12 dict begin\nbegincmap\n"
        "/CIDSystemInfo << /Registry (Adobe) /Ordering (UCS) /Supplement 0 >> def\n"
        "/CMapName /Adobe-Identity-UCS def\n/CMapType 2 def\n"
        "1 begincodespacerange\n<0000> <FFFF>\nendcodespacerange\n"
        f"{body}\nendcmap\nCMapName currentdict /CMap defineresource pop\nend\nend\n"
    ).encode()
