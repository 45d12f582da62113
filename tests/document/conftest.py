"""Small PDFs made by hand, so that every box, rotation and password in a test is known."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

PASSWORD_PADDING = bytes.fromhex("28BF4E5E4E758A4164004E56FFFA01082E2E00B6D0683E802F0CA9FE6453697A")


@dataclass(frozen=True)
class PdfPage:
    """Texts as (x, y, string) in points from the lower left corner, and whatever else the page dictionary needs."""

    texts: Sequence[tuple[float, float, str]] = ((72, 700, "Hello World"),)
    media_box: Sequence[float] = (0, 0, 612, 792)
    extra: str = ""


def rc4(key: bytes, data: bytes) -> bytes:
    state, j = list(range(256)), 0
    for i in range(256):
        j = (j + state[i] + key[i % len(key)]) % 256
        state[i], state[j] = state[j], state[i]
    out, i, j = bytearray(), 0, 0
    for byte in data:
        i = (i + 1) % 256
        j = (j + state[i]) % 256
        state[i], state[j] = state[j], state[i]
        out.append(byte ^ state[(state[i] + state[j]) % 256])
    return bytes(out)


def write_pdf(
    path: Path, pages: Sequence[PdfPage] = (PdfPage(),), *, user: str | None = None, owner: str | None = None
) -> Path:
    """Write `pages`; with `user` or `owner`, encrypted by the standard handler (RC4, 40 bit)."""
    file_id = hashlib.md5(str(path).encode()).digest()
    key = b""
    encrypt = ""
    if user is not None or owner is not None:
        user_padded = ((user or "").encode() + PASSWORD_PADDING)[:32]
        owner_padded = ((owner or user or "").encode() + PASSWORD_PADDING)[:32]
        o_entry = rc4(hashlib.md5(owner_padded).digest()[:5], user_padded)
        permissions = -44
        key = hashlib.md5(user_padded + o_entry + permissions.to_bytes(4, "little", signed=True) + file_id).digest()[:5]
        encrypt = (
            f"<< /Filter /Standard /V 1 /R 2 /O <{o_entry.hex()}> /U <{rc4(key, PASSWORD_PADDING).hex()}> "
            f"/P {permissions} >>"
        )
    objects: list[bytes] = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"",
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    kids = []
    for page in pages:
        stream = "".join(f"BT /F1 24 Tf {x} {y} Td ({text}) Tj ET\n" for x, y, text in page.texts).encode("latin-1")
        number = len(objects) + 2
        if key:
            object_key = hashlib.md5(key + number.to_bytes(3, "little") + b"\0\0").digest()[:10]
            stream = rc4(object_key, stream)
        box = " ".join(str(value) for value in page.media_box)
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [{box}] /Contents {number} 0 R "
            f"/Resources << /Font << /F1 3 0 R >> >> {page.extra} >>".encode()
        )
        kids.append(f"{len(objects)} 0 R")
        objects.append(b"<< /Length %d >>\nstream\n" % len(stream) + stream + b"\nendstream")
    objects[1] = f"<< /Type /Pages /Kids [{' '.join(kids)}] /Count {len(kids)} >>".encode()
    if encrypt:
        objects.append(encrypt.encode())
    body = bytearray(b"%PDF-1.4\n")
    offsets = []
    for number, content in enumerate(objects, start=1):
        offsets.append(len(body))
        body += b"%d 0 obj\n" % number + content + b"\nendobj\n"
    start = len(body)
    body += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    body += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    trailer = f"/Size {len(objects) + 1} /Root 1 0 R /ID [<{file_id.hex()}> <{file_id.hex()}>]"
    if encrypt:
        trailer += f" /Encrypt {len(objects)} 0 R"
    body += f"trailer\n<< {trailer} >>\nstartxref\n{start}\n%%EOF\n".encode()
    path.write_bytes(bytes(body))
    return path


@pytest.fixture
def make_pdf(tmp_path: Path) -> Callable[..., Path]:
    """`make_pdf(pages, name=..., user=..., owner=...)` writes a PDF into the test's folder."""

    def make(pages: Sequence[PdfPage] = (PdfPage(),), *, name: str = "test.pdf", **passwords: str | None) -> Path:
        return write_pdf(tmp_path / name, pages, **passwords)

    return make


@pytest.fixture
def pdf_page() -> type[PdfPage]:
    return PdfPage
