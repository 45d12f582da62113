"""Sources of every kind that people have: boxes and rotations, passwords, damage, odd sizes, frames and colours."""

from __future__ import annotations

import errno
import io
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pypdf import PdfReader, PdfWriter
from pypdf.generic import RectangleObject
from reportlab.pdfgen import canvas

from mineru_diffusion.document import image_source
from mineru_diffusion.document.colours import rgb_within, upright
from mineru_diffusion.document.file_kinds import file_kind
from mineru_diffusion.document.inputs import expand_inputs
from mineru_diffusion.document.source_types import fitting_scale
from mineru_diffusion.document.sources import open_source
from mineru_diffusion.errors import PasswordRequired, SourceError, UsageError

MakePdf = Callable[..., Path]


def drawn(*texts: tuple[float, float, str], size: tuple[float, float] = (600, 800), pages: int = 1) -> bytes:
    file = io.BytesIO()
    drawing = canvas.Canvas(file, pagesize=size)
    for _ in range(pages):
        for x, y, text in texts or ((50, 700, "Hello World"),):
            drawing.drawString(x, y, text)
        drawing.showPage()
    drawing.save()
    return file.getvalue()


def rewritten(data: bytes, change: Callable[[Any], None], **encryption: Any) -> bytes:
    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(data)))
    for page in writer.pages:
        change(page)
    if encryption:
        writer.encrypt(**encryption)
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def raw_pdf(page: str, kids: str = "3 0 R", count: int = 1) -> bytes:
    """One page dictionary as it is given, and a page tree around it."""
    return (
        "%PDF-1.4\n1 0 obj\n<</Type/Catalog/Pages 2 0 R>>\nendobj\n"
        f"2 0 obj\n<</Type/Pages/Kids[{kids}]/Count {count}>>\nendobj\n3 0 obj\n{page}\nendobj\n"
        "trailer\n<</Root 1 0 R/Size 4>>\n%%EOF"
    ).encode()


def save(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("rotate", [0, 90, 180, 270])
def test_what_is_outside_the_crop_box_is_not_there_however_the_page_is_turned(tmp_path: Path, rotate: int) -> None:
    def change(page: Any) -> None:
        page.cropbox = RectangleObject((0, 81, 600, 800))
        page.rotate(rotate)

    path = save(tmp_path / "a.pdf", rewritten(drawn((50, 700, "inside"), (50, 20, "outside")), change))
    with open_source(path) as source:
        page = source.page(0)
        assert source.text_layer(0).split() == ["inside"]
        assert (page.width_pt, page.height_pt) == ((719, 600) if rotate % 180 else (600, 719))


def test_a_crop_box_beside_the_page_is_ignored(tmp_path: Path) -> None:
    path = save(
        tmp_path / "a.pdf", raw_pdf("<</Type/Page/Parent 2 0 R/MediaBox[0 0 90 190]/CropBox[500 500 600 600]>>")
    )
    with open_source(path) as source:
        page = source.page(0)
        assert (page.width_pt, page.height_pt) == (90, 190)


@pytest.mark.parametrize("algorithm", ["RC4-40", "RC4-128", "AES-128", "AES-256-R5", "AES-256"])
@pytest.mark.parametrize("password", ["secret", "p\u00e4ssw\u00f6rd", "\u5bc6\u7801"])
def test_every_kind_of_encryption(tmp_path: Path, algorithm: str, password: str) -> None:
    locked = rewritten(drawn(), lambda page: None, user_password=password, owner_password="boss", algorithm=algorithm)
    path = save(tmp_path / "a.pdf", locked)
    for wrong, said in ((None, "encrypted"), ("guess", "wrong")):
        with pytest.raises(PasswordRequired, match=said) as caught:
            open_source(path, password=wrong)
        assert "--password" in caught.value.cure
    for right in (password, "boss"):
        with open_source(path, password=right) as source:
            assert source.text_layer(0).split() == ["Hello", "World"]
    free = rewritten(drawn(), lambda page: None, user_password="", owner_password="boss", algorithm=algorithm)
    with open_source(save(path, free)) as source:
        assert source.text_layer(0).split() == ["Hello", "World"]


def test_a_pdf_without_pages_is_that_and_not_the_error_before_it(tmp_path: Path, make_pdf: MakePdf) -> None:
    with pytest.raises(PasswordRequired):
        open_source(make_pdf(user="secret"))
    empty = io.BytesIO()
    PdfWriter().write(empty)
    with pytest.raises(SourceError, match="no pages") as caught:
        open_source(save(tmp_path / "zero.pdf", empty.getvalue()))
    assert not isinstance(caught.value, PasswordRequired)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "empty"),
        (b"\0" * 3000, "nothing but zeros"),
        (b"PK\x03\x04 word/document.xml", "Office"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n", "PostScript"),
        (b"<!DOCTYPE html><p>Please log in", "HTML"),
        (b"just words", "neither a PDF nor a known image"),
        (b"%PDF-1.4\njust words", "damaged or incomplete"),
        (b"\x89PNG\r\n\x1a\njust words", "damaged"),
    ],
)
def test_what_is_no_document_says_what_it_is(tmp_path: Path, data: bytes, said: str) -> None:
    with pytest.raises(SourceError, match=said) as caught:
        open_source(save(tmp_path / "a.dat", data))
    assert caught.value.cure
    assert str(tmp_path / "a.dat") in str(caught.value)


def test_a_web_page_saved_as_pdf(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="HTML"):
        open_source(save(tmp_path / "a.pdf", b"<html>404"))
    with pytest.raises(SourceError, match="no PDF header"):
        open_source(save(tmp_path / "a.pdf", b"404"))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "a.pdf"
    os.mkfifo(pipe)
    with pytest.raises(SourceError, match="not a regular file"):
        open_source(pipe)


def test_damage_that_pdfium_works_around_is_noted(tmp_path: Path) -> None:
    data = drawn(pages=3)
    whole = save(tmp_path / "whole.pdf", data)
    with open_source(whole) as source:
        assert (source.page_count, source.notes) == (3, ())
    shifted = save(tmp_path / "shifted.pdf", b"Some mailer's header\r\n" + data)
    with open_source(shifted) as source:
        assert (source.page_count, source.notes) == (3, ())
    place = data.rindex(b"startxref") + 10
    spoiled = {
        "end mark": data.replace(b"%%EOF", b""),
        "is damaged": data[:place] + b"77" + data[place + 2 :],
    }
    for said, spoilt in spoiled.items():
        with open_source(save(tmp_path / "spoilt.pdf", spoilt)) as source:
            assert source.page_count == 3
            assert source.text_layer(2).split() == ["Hello", "World"]
            assert said in source.notes[0]


def test_a_missing_page_is_that_page_only(tmp_path: Path) -> None:
    page = "<</Type/Page/Parent 2 0 R/MediaBox[0 0 90 90]>>"
    with open_source(save(tmp_path / "a.pdf", raw_pdf(page, "3 0 R 9 0 R 3 0 R", 3))) as source:
        assert source.page_count == 3
        source.page(0)
        source.page(2)
        with pytest.raises(SourceError, match=r"a\.pdf, page 2: the page is damaged \(repair"):
            source.page(1)


@pytest.mark.parametrize("box", ["0 0 0 0", "100 100 0 0", "0 0 1e30 1e30", "0 0 20000000 0.01", "0 0 14400 14400"])
def test_odd_page_sizes_come_out_bounded(tmp_path: Path, box: str) -> None:
    path = save(tmp_path / "a.pdf", raw_pdf(f"<</Type/Page/Parent 2 0 R/MediaBox[{box}]>>"))
    with open_source(path, max_pixels=1_000_000) as source:
        page = source.page(0)
    assert 1 <= page.image.width * page.image.height <= 1_000_000
    assert max(page.image.size) <= 30_000
    if "14400" in box:
        assert page.notes == ("page of 14400 x 14400 pt scaled down to 5 dpi",)


def test_a_name_with_a_tilde_or_odd_bytes(tmp_path: Path) -> None:
    for name in ("~nobody.pdf", "a\udcff.pdf", "\u8868 #%.pdf"):
        with open_source(save(tmp_path / name, drawn())) as source:
            assert source.page_count == 1


def test_scales_that_fit() -> None:
    assert fitting_scale(100, 100, 10_000) == 1
    assert fitting_scale(200, 200, 10_000) == pytest.approx(0.5)
    assert fitting_scale(60_000, 10, 10**9) == pytest.approx(0.5)
    assert fitting_scale(1e6, 0.001, 1000) == pytest.approx(0.001)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I", "I;16", "F"])
def test_bands_give_what_the_whole_gives(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from mineru_diffusion.document import colours

    noise = np.random.default_rng(0).integers(0, 256, (180, 120), dtype=np.uint8)
    deep = {"I": np.int32, "I;16": np.uint16, "F": np.float32}
    if mode in deep:
        image = Image.fromarray(noise.astype(deep[mode]) * deep[mode](200))  # type: ignore[operator]
    else:
        image = Image.fromarray(noise).convert(mode)
    whole = np.asarray(rgb_within(image, 1000), dtype=int)
    monkeypatch.setattr(colours, "BAND_PIXELS", 2000)
    banded = np.asarray(rgb_within(image, 1000), dtype=int)
    assert np.abs(whole - banded).max() <= 1
    reference = np.asarray(
        rgb_within(image, 10**6).resize((banded.shape[1], banded.shape[0]), Image.Resampling.BOX), int
    )
    assert np.abs(banded - reference).max() <= 2


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", [".jpg", ".png", ".tif", ".webp"])
def test_every_orientation_ends_upright(tmp_path: Path, orientation: int, suffix: str) -> None:
    right = Image.new("RGB", (64, 32), "white")
    right.paste((0, 0, 0), (0, 0, 32, 8))  # black at the top, on the left
    undo = {
        2: Image.Transpose.FLIP_LEFT_RIGHT, 3: Image.Transpose.ROTATE_180, 4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE, 6: Image.Transpose.ROTATE_90, 7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }  # fmt: skip
    stored = right.transpose(undo[orientation]) if orientation in undo else right
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / f"a{suffix}"
    stored.save(path, exif=exif)
    for limit in (10**6, 512):
        with open_source(path, max_pixels=limit) as source:
            page = source.page(0)
            again = source.page(0)
        assert (page.width_pt, page.height_pt) == (64, 32)
        assert (again.width_pt, again.height_pt, again.notes) == (64, 32, page.notes)
        assert bool(page.notes) == (limit == 512)
        x, y = page.image.width, page.image.height
        assert page.image.getpixel((x // 4, 0))[0] < 90  # type: ignore[index]
        assert page.image.getpixel((3 * x // 4, 0))[0] > 160  # type: ignore[index]
        assert page.image.getpixel((x // 4, y - 1))[0] > 160  # type: ignore[index]


def test_damaged_metadata_turn_nothing() -> None:
    class Broken(Image.Image):
        def getexif(self) -> Image.Exif:
            raise zlib.error("no")

    image = Image.new("RGB", (2, 1))
    assert upright(image, Broken()) == (image, False)


def test_heic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pillow_heif").register_heif_opener()
    path = tmp_path / "photo.jpg"  # as messengers name them
    Image.new("RGB", (64, 48), (200, 30, 40)).save(path, format="HEIF")
    assert file_kind(path.read_bytes()) == "HEIF"
    with open_source(path) as source:
        page = source.page(0)
        assert page.image.size == (64, 48)
        assert page.image.getpixel((5, 5))[0] > 150  # type: ignore[index]

    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(image_source.importlib, "import_module", missing)
    with pytest.raises(SourceError, match=r"mineru-diffusion\[heic\]"):
        open_source(path)


def test_a_postscript_image_starts_no_other_program(tmp_path: Path) -> None:
    path = save(tmp_path / "a.png", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n")
    with pytest.raises(SourceError):
        open_source(path)


@pytest.mark.parametrize("given", ["-", "https://example.org/a.pdf", "s3://bucket/a.pdf", "file:///etc/passwd"])
def test_standard_input_and_addresses_are_no_sources(given: str) -> None:
    with pytest.raises(UsageError, match="save the document"):
        expand_inputs([given])


def test_folders_take_documents_under_any_name_and_tell_what_they_leave(tmp_path: Path) -> None:
    save(tmp_path / "scan", drawn())
    save(tmp_path / "letter.docx", b"PK\x03\x04")
    Image.new("L", (3, 3)).save(tmp_path / "photo.bak", format="PNG")
    passed: list[tuple[str, str]] = []
    found = expand_inputs([tmp_path], passed_over=lambda path, why: passed.append((path.name, why)))
    assert [path.name for path in found] == ["photo.bak", "scan"]
    assert passed == [("letter.docx", "neither a PDF nor an image")]


def test_a_folder_that_cannot_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shut").mkdir()
    save(tmp_path / "a.pdf", drawn())
    original = os.scandir

    def scandir(path: Any) -> Any:
        if Path(path).name == "shut":
            raise PermissionError(errno.EACCES, "Permission denied")
        return original(path)

    monkeypatch.setattr(os, "scandir", scandir)
    passed: list[str] = []
    found = expand_inputs([tmp_path], passed_over=lambda path, why: passed.append(f"{path.name}: {why}"))
    assert [path.name for path in found] == ["a.pdf"]
    assert passed == ["shut: the folder cannot be read: Permission denied"]


@pytest.mark.skipif(not hasattr(os, "symlink"), reason="no links here")
def test_a_link_to_a_folder_above_does_not_run_in_circles(tmp_path: Path) -> None:
    save(tmp_path / "a.pdf", drawn())
    (tmp_path / "loop").symlink_to(tmp_path, target_is_directory=True)
    assert [path.name for path in expand_inputs([tmp_path])] == ["a.pdf"]
