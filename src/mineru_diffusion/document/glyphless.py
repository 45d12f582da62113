"""A TrueType font whose every character is one and the same box, for invisible text that is there to be found.

Searchable PDFs need a font that any character can be written in. This one has a single glyph and weighs less than
500 bytes, so that no font file has to be shipped or found on the machine. The box is never painted (text rendering
mode 3), but readers take the place of a character from its outline and drop text without any.
"""

from __future__ import annotations

import struct

UNITS_PER_EM = 1000
ADVANCE = 500
ASCENT, DESCENT = 800, -200


def glyphless_font() -> bytes:
    """The font file (OpenType specification 1.9: the tables that an embedded TrueType font must have)."""
    head = struct.pack(
        ">IIIIHHqqhhhhHHhhh",
        0x00010000, 0x00010000, 0, 0x5F0F3CF5, 0b1011, UNITS_PER_EM, 0, 0, 0, DESCENT, ADVANCE, ASCENT, 0, 8, 2, 0, 0,
    )  # fmt: skip
    hhea = struct.pack(">IhhhHhhhhhhhhhhhH", 0x00010000, ASCENT, DESCENT, 0, ADVANCE, *(0,) * 3, 1, *(0,) * 7, 1)
    maxp = struct.pack(">IH13H", 0x00010000, 2, 4, 1, 0, 0, 2, *(0,) * 8)
    # One contour around the whole advance: four points on the curve, as steps of 16 bits from one to the next.
    box = struct.pack(">hhhhhHH4B", 1, 0, DESCENT, ADVANCE, ASCENT, 3, 0, *(1,) * 4)
    box += struct.pack(">8h", 0, 0, ADVANCE, 0, DESCENT, ASCENT - DESCENT, 0, DESCENT - ASCENT)
    tables = {
        b"cmap": struct.pack(">HHHHI9H", 0, 1, 3, 1, 12, 4, 24, 0, 2, 2, 0, 0, 0xFFFF, 0)
        + struct.pack(">3H", 0xFFFF, 1, 0),
        b"glyf": box,
        b"head": head,
        b"hhea": hhea,
        b"hmtx": struct.pack(">Hhh", ADVANCE, 0, 0),
        b"loca": struct.pack(">3H", 0, 0, len(box) // 2),
        b"maxp": maxp,
        b"post": struct.pack(">IIhhIIIII", 0x00030000, 0, 0, 0, 1, 0, 0, 0, 0),
    }
    font = _assemble(tables)
    adjustment = (0xB1B0AFBA - _checksum(font)) & 0xFFFFFFFF
    tables[b"head"] = head[:8] + struct.pack(">I", adjustment) + head[12:]
    return _assemble(tables)


def _assemble(tables: dict[bytes, bytes]) -> bytes:
    power = len(tables).bit_length() - 1
    out = struct.pack(">IHHHH", 0x00010000, len(tables), 16 << power, power, 16 * len(tables) - (16 << power))
    offset = len(out) + 16 * len(tables)
    body = b""
    for tag, data in sorted(tables.items()):
        whole = data if tag != b"head" else data[:8] + bytes(4) + data[12:]
        out += struct.pack(">4sIII", tag, _checksum(whole), offset + len(body), len(data))
        body += data + bytes(-len(data) % 4)
    return out + body


def _checksum(data: bytes) -> int:
    data += bytes(-len(data) % 4)
    return sum(struct.unpack(f">{len(data) // 4}I", data)) & 0xFFFFFFFF
