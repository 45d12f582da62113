from __future__ import annotations

import struct
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from mineru_diffusion.document.sources import open_source
from mineru_diffusion.errors import PasswordRequired, SourceError, UsageError

MakePdf = Callable[..., Path]


def ink_box(image: Image.Image) -> tuple[float, float, float, float]:
    """Box of everything dark, as fractions of the image."""
    dark = np.asarray(image.convert("L")) < 128
    rows, columns = np.flatnonzero(dark.any(1)), np.flatnonzero(dark.any(0))
    height, width = dark.shape
    return columns[0] / width, rows[0] / height, columns[-1] / width, rows[-1] / height


def test_pdf_page_size_text_and_rendering(make_pdf: MakePdf) -> None:
    with open_source(make_pdf(), dpi=144) as source:
        assert (source.kind, source.page_count) == ("pdf", 1)
        page = source.page(0)
        assert (page.width_pt, page.height_pt) == (612, 792)
        assert page.image.size == (1224, 1584)
        assert page.image.mode == "RGB"
        assert page.notes == ()
        assert source.text_layer(0).strip() == "Hello World"
        x0, y0, _, y1 = ink_box(page.image)
        assert x0 == pytest.approx(72 / 612, abs=0.01)
        assert y0 < (792 - 700) / 792 < y1 + 0.01
        with pytest.raises(IndexError):
            source.page(1)


@pytest.mark.parametrize("rotate", [0, 90, 180, 270])
def test_rotated_page_is_rendered_as_displayed(make_pdf: MakePdf, pdf_page: Any, rotate: int) -> None:
    with open_source(make_pdf([pdf_page(extra=f"/Rotate {rotate}")])) as source:
        page = source.page(0)
        assert (page.width_pt, page.height_pt) == ((792, 612) if rotate % 180 else (612, 792))
        assert (page.image.width > page.image.height) == bool(rotate % 180)
        x0, y0, x1, y1 = ink_box(page.image)
        corner = {0: (x0, y0), 90: (1 - y0, x0), 180: (1 - x1, 1 - y1), 270: (y0, 1 - x1)}
        # The text starts at 72 pt from the left and 92 pt from the top of the unrotated page.
        left = {0: x0, 90: y0, 180: 1 - x1, 270: 1 - y1}[rotate]
        assert left == pytest.approx(72 / 612, abs=0.01), corner
        assert source.text_layer(0).strip() == "Hello World"


def test_crop_box_is_the_frame(make_pdf: MakePdf, pdf_page: Any) -> None:
    texts = [(72, 700, "inside"), (72, 20, "outside")]
    with open_source(make_pdf([pdf_page(texts=texts, extra="/CropBox [0 81 612 792]")])) as source:
        page = source.page(0)
        assert (page.width_pt, page.height_pt) == (612, 711)
        assert source.text_layer(0).strip() == "inside"
        assert ink_box(page.image)[3] < 0.2


def test_crop_box_larger_than_media_box_is_clipped(make_pdf: MakePdf, pdf_page: Any) -> None:
    with open_source(make_pdf([pdf_page(extra="/CropBox [-100 -100 900 900]")])) as source:
        page = source.page(0)
        assert (page.width_pt, page.height_pt) == (612, 792)
        assert source.text_layer(0).strip() == "Hello World"


def test_user_password(make_pdf: MakePdf) -> None:
    path = make_pdf(user="secret", owner="boss")
    with pytest.raises(PasswordRequired, match="--password"):
        open_source(path)
    with pytest.raises(PasswordRequired, match="wrong"):
        open_source(path, password="guess")
    for password in ("secret", "boss"):
        with open_source(path, password=password) as source:
            assert source.text_layer(0).strip() == "Hello World"


def test_owner_password_alone_just_opens(make_pdf: MakePdf) -> None:
    with open_source(make_pdf(owner="boss")) as source:
        assert source.text_layer(0).strip() == "Hello World"
        assert ink_box(source.page(0).image)


def test_damaged_and_missing_files(make_pdf: MakePdf, tmp_path: Path) -> None:
    whole = make_pdf().read_bytes()
    cut = tmp_path / "cut.pdf"
    cut.write_bytes(whole[:500])
    junk, empty = tmp_path / "junk.pdf", tmp_path / "empty.pdf"
    junk.write_bytes(b"nothing that anyone could read")
    empty.touch()
    for path in (cut, junk, empty, tmp_path / "absent.pdf", tmp_path):
        with pytest.raises(SourceError) as caught:
            open_source(path)
        assert str(path) in str(caught.value)
        assert caught.value.cure
        assert not isinstance(caught.value, PasswordRequired)


def test_many_threads_read_one_good_pdf(make_pdf: MakePdf, pdf_page: Any) -> None:
    path = make_pdf([pdf_page(texts=[(72, 700, f"page {i}")]) for i in range(3)])
    failures: list[BaseException] = []

    def read() -> None:
        try:
            for _ in range(4):
                with open_source(path, dpi=30) as source:
                    for index in range(3):
                        source.page(index)
                        assert source.text_layer(index).strip() == f"page {index}"
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_huge_pdf_page_is_scaled_down_and_says_so(make_pdf: MakePdf, pdf_page: Any) -> None:
    path = make_pdf([pdf_page(media_box=(0, 0, 14400, 14400))])
    with open_source(path, max_pixels=1_000_000) as source:
        page = source.page(0)
        assert 900_000 < page.image.width * page.image.height <= 1_000_000
        assert page.width_pt == 14400
        assert "scaled down" in page.notes[0]


def test_text_layer_has_whole_words_and_no_control_characters(make_pdf: MakePdf, pdf_page: Any) -> None:
    texts = [(72, 700, "we need infor-"), (72, 670, "mation now")]
    with open_source(make_pdf([pdf_page(texts=texts)])) as source:
        text = source.text_layer(0)
    assert "\x02" not in text
    assert "\ufffe" not in text
    assert " ".join(text.split()) == "we need information now"


def test_use_after_close(make_pdf: MakePdf) -> None:
    with open_source(make_pdf()) as source:
        pass
    source.close()
    with pytest.raises(ValueError, match="closed"):
        source.page(0)


def test_bad_limits(make_pdf: MakePdf) -> None:
    with pytest.raises(UsageError):
        open_source(make_pdf(), dpi=0)


def test_tiff_frames_and_animations(tmp_path: Path) -> None:
    shades = [Image.new("L", (40, 30), value) for value in (0, 100, 200)]
    tiff, gif = tmp_path / "X.TIFF", tmp_path / "a.gif"
    shades[0].save(tiff, format="TIFF", save_all=True, append_images=shades[1:])
    shades[0].save(gif, save_all=True, append_images=shades[1:])
    with open_source(tiff) as source:
        assert (source.kind, source.page_count) == ("image", 3)
        for index in (2, 0, 1):
            page = source.page(index)
            assert (page.index, page.width_pt, page.height_pt) == (index, 40, 30)
            assert page.image.getpixel((0, 0)) == (index * 100,) * 3
    with open_source(gif) as source:
        assert source.page_count == 1
        page = source.page(0)
        assert page.image.getpixel((0, 0)) == (0, 0, 0)
        assert "first of 3 frames" in page.notes[0]


def test_type_by_content_not_suffix(tmp_path: Path, make_pdf: MakePdf) -> None:
    path = tmp_path / "photo.pdf"
    Image.new("RGB", (10, 10), (1, 2, 3)).save(path, format="PNG")
    with open_source(path) as source:
        assert source.kind == "image"
        assert source.text_layer(0) == ""
    with open_source(make_pdf(name="scan.jpg")) as source:
        assert source.kind == "pdf"


def test_exif_orientation(tmp_path: Path) -> None:
    image = Image.new("RGB", (60, 20), (255, 255, 255))
    image.paste((0, 0, 0), (0, 0, 10, 20))  # black on the left; turned clockwise: on top
    exif = Image.Exif()
    exif[0x0112] = 6
    path = tmp_path / "x.JPG"
    image.save(path, exif=exif, quality=95)
    with open_source(path) as source:
        page = source.page(0)
        assert page.image.size == (20, 60)
        assert page.image.getpixel((10, 2))[0] < 60
        assert page.image.getpixel((10, 50))[0] > 200
    with open_source(path, max_pixels=300) as source:
        page = source.page(0)
        assert (page.width_pt, page.height_pt) == (20, 60)
        assert page.image.width < page.image.height
        assert page.image.width * page.image.height <= 300


def test_image_limits(tmp_path: Path) -> None:
    # Only the header is there: a file that is too large must be refused before anything is decoded.
    path = tmp_path / "large.png"
    header = b"IHDR" + struct.pack(">IIBBBBB", 30000, 30000, 1, 0, 0, 0, 0)
    chunks = [header, b"IDAT" + zlib.compress(b""), b"IEND"]
    sealed = [struct.pack(">I", len(c) - 4) + c + struct.pack(">I", zlib.crc32(c)) for c in chunks]
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(sealed))
    with pytest.raises(SourceError, match="--max-image-pixels"):
        open_source(path)
    small = tmp_path / "small.png"
    Image.new("L", (300, 200)).save(small)
    with open_source(small, max_pixels=600) as source:
        page = source.page(0)
        assert page.image.size == (30, 20)
        assert page.width_pt == 300
        assert "scaled down" in page.notes[0]


def test_pillows_own_limit_is_put_back(tmp_path: Path) -> None:
    before = Image.MAX_IMAGE_PIXELS
    path = tmp_path / "a.png"
    Image.new("L", (3, 2)).save(path)
    with open_source(path) as source:
        source.page(0)
    assert before == Image.MAX_IMAGE_PIXELS


def test_colour_modes(tmp_path: Path) -> None:
    def first_pixel(image: Image.Image, name: str, **options: Any) -> tuple[int, ...]:
        image.save(tmp_path / name, **options)
        with open_source(tmp_path / name) as source:
            page = source.page(0).image
            assert page.mode == "RGB"
            return page.getpixel((0, 0))  # type: ignore[return-value]

    assert first_pixel(Image.new("RGBA", (4, 4), (0, 0, 0, 0)), "clear.png") == (255, 255, 255)
    assert first_pixel(Image.new("LA", (4, 4), (0, 128)), "grey.png") == (127, 127, 127)
    palette = Image.new("P", (4, 4), 1)
    palette.putpalette([255, 0, 0, 0, 0, 255])
    assert first_pixel(palette, "palette.png") == (0, 0, 255)
    assert first_pixel(palette, "palette_clear.png", transparency=1) == (255, 255, 255)
    red, green, blue = first_pixel(Image.new("CMYK", (16, 16), (0, 255, 255, 0)), "cmyk.jpg")
    assert red > 220
    assert max(green, blue) < 60
    deep = Image.fromarray(np.full((4, 4), 0x8000, np.uint16))
    assert first_pixel(deep, "deep.png") == (128, 128, 128)
    assert first_pixel(deep, "deep.tif") == (128, 128, 128)
    assert first_pixel(Image.fromarray(np.full((4, 4), 0.5, np.float32)), "float.tif") == (128, 128, 128)
    assert first_pixel(Image.new("1", (4, 4), 1), "bits.png") == (255, 255, 255)


def test_truncated_image(tmp_path: Path) -> None:
    path = tmp_path / "cut.png"
    noise = np.random.default_rng(0).integers(0, 256, (200, 200, 3), dtype=np.uint8)
    Image.fromarray(noise).save(path)
    path.write_bytes(path.read_bytes()[:20000])
    with pytest.raises(SourceError, match="damaged") as caught, open_source(path) as source:
        source.page(0)
    assert caught.value.page == 1
