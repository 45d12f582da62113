"""Whatever a file holds, opening and rendering it gives pages or one of our errors.

A handful of examples in the ordinary run, ten thousand of each kind in the slow one.
"""

from __future__ import annotations

import io
import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pypdf import PdfReader, PdfWriter
from pypdf.generic import FloatObject, NameObject, RectangleObject
from reportlab.pdfgen import canvas

from mineru_diffusion.document.source_types import MAX_SIDE
from mineru_diffusion.document.sources import open_source
from mineru_diffusion.errors import SourceError

MAX_PIXELS = 40_000
MODES = ("1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBa", "CMYK", "YCbCr", "LAB", "HSV", "I", "I;16", "F")
FORMATS = (
    "PNG", "JPEG", "TIFF", "BMP", "GIF", "WEBP", "PPM", "JPEG2000", "AVIF", "HEIF", "PCX", "SGI", "ICO", "QOI",
)  # fmt: skip
SUFFIXES = (".png", ".jpg", ".pdf", ".TIF", "", ".txt", ".heic")
ALGORITHMS = ("RC4-40", "RC4-128", "AES-128", "AES-256-R5", "AES-256")


def check_message(error: SourceError, path: Path, index: int | None = None) -> None:
    """File, page, cause and cure."""
    assert str(path) in str(error)
    assert error.cause
    assert error.cure
    assert error.page == (None if index is None else index + 1)


def drain(path: Path, dice: random.Random, password: str | None = None) -> tuple[int, int]:
    """Open and render everything; returns pages that came and pages that failed. Any other exception is a bug."""
    came = failed = 0
    try:
        with open_source(
            path,
            password=password,
            dpi=dice.choice((20, 72, 100)),
            max_pixels=MAX_PIXELS,
            max_image_pixels=dice.choice((2_000, 10_000_000)),
        ) as source:
            for index in range(min(source.page_count, 12)):
                try:
                    page = source.page(index)
                except SourceError as error:
                    check_message(error, path, index)
                    failed += 1
                    continue
                assert page.image.mode == "RGB"
                assert page.image.width * page.image.height <= MAX_PIXELS
                assert max(page.image.size) <= MAX_SIDE
                assert page.width_pt > 0
                assert page.height_pt > 0
                page.image.load()
                try:
                    source.text_layer(index)
                except SourceError as error:
                    check_message(error, path, index)
                came += 1
    except SourceError as error:
        check_message(error, path)
        return 0, 1
    return came, failed


def random_pdf(dice: random.Random) -> bytes:
    """Pages of any size, box, rotation and unit, with text, pictures and shapes; encrypted at times."""
    file = io.BytesIO()
    drawing = canvas.Canvas(file)
    for _ in range(dice.randint(1, 3)):
        size = [dice.choice((0.5, 3.0, 100.0, 300.0, 612.0, 3000.0, 14400.0)) for _ in range(2)]
        drawing.setPageSize(size)
        for _ in range(dice.randint(0, 5)):
            x, y = (dice.uniform(-50, 1.2 * side) for side in size)
            if dice.random() < 0.6:
                drawing.setFont(dice.choice(("Helvetica", "Times-Roman", "Symbol")), dice.uniform(0.1, 90))
                drawing.drawString(x, y, "".join(chr(dice.randint(32, 255)) for _ in range(dice.randint(0, 40))))
            elif dice.random() < 0.5:
                drawing.circle(x, y, dice.uniform(0, 900), fill=dice.random() < 0.5)
            else:
                picture = Image.new(dice.choice(("L", "RGB")), (dice.randint(1, 9), dice.randint(1, 9)), 90)
                drawing.drawInlineImage(picture, x, y, dice.uniform(1, 400), dice.uniform(1, 400))
        drawing.showPage()
    drawing.save()
    if dice.random() < 0.3:
        return file.getvalue()
    writer = PdfWriter(clone_from=PdfReader(file))
    for page in writer.pages:
        if dice.random() < 0.5:
            page[NameObject("/Rotate")] = FloatObject(dice.choice((0, 90, 180, 270, -90, 450, 45, 1e9)))
        for box in ("/CropBox", "/MediaBox"):
            if dice.random() < 0.3:
                page[NameObject(box)] = RectangleObject(
                    [dice.choice((-1e6, -50, 0, 10, 100, 612, 1e7)) for _ in "abcd"]
                )
        if dice.random() < 0.1:
            page[NameObject("/UserUnit")] = FloatObject(dice.choice((0, 0.1, 10, -1)))
        if dice.random() < 0.1:
            page.pop(dice.choice(("/Contents", "/Resources", "/MediaBox")), None)
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def encrypted(data: bytes, dice: random.Random) -> tuple[bytes, str]:
    writer = PdfWriter(clone_from=io.BytesIO(data))
    password = dice.choice(("", "secret", "p\u00e4ssw\u00f6rd", "\u5bc6\u7801", "x" * 127))
    writer.encrypt(password, dice.choice(("owner", None)), algorithm=dice.choice(ALGORITHMS))
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue(), password


def damaged(data: bytes, dice: random.Random) -> bytes:
    """Cut, overwritten, shifted or repeated somewhere."""
    kind = dice.randrange(6)
    if not data or kind == 0:
        return data
    where = dice.randrange(len(data))
    if kind == 1:
        return data[:where]
    if kind == 2:
        return data[where:]
    if kind == 3:
        return data[:where] + bytes(dice.randrange(256) for _ in range(dice.randint(1, 60))) + data[where:]
    if kind == 4:
        spoiled = bytearray(data)
        for _ in range(dice.randint(1, 30)):
            spoiled[dice.randrange(len(spoiled))] = dice.randrange(256)
        return bytes(spoiled)
    return data[:where] + data[max(0, where - dice.randint(1, 400)) :]


def random_image(dice: random.Random) -> bytes:
    """Any mode in any format that takes it, of any size, with odd metadata at times."""
    mode = dice.choice(MODES)
    size = (dice.choice((1, 2, 7, 40, 300, 5000)), dice.choice((1, 3, 8, 50, 200)))
    noise = np.random.default_rng(dice.getrandbits(32)).integers(0, 256, (size[1], size[0]), dtype=np.uint8)
    image = Image.fromarray(noise)
    if mode in ("I", "I;16", "F"):
        values = noise.astype(np.float32) * dice.choice((1 / 255, 1, 257, 1e5, -3))
        if mode == "F" and dice.random() < 0.3:
            values[0, 0] = dice.choice((np.nan, np.inf, -np.inf))
        image = Image.fromarray({"I": np.int32, "I;16": np.uint16, "F": np.float32}[mode](np.nan_to_num(values, nan=0)))
        if mode == "F":
            image = Image.fromarray(values.astype(np.float32))
    elif mode in ("LAB", "La", "RGBa"):
        image = Image.new(mode, size)
    elif mode == "PA":
        image = image.convert("P").convert("PA")
    else:
        image = image.convert("RGB").convert(mode) if mode in ("YCbCr", "HSV", "CMYK") else image.convert(mode)
    options: dict[str, Any] = {}
    if dice.random() < 0.3:
        exif = Image.Exif()
        exif[0x0112] = dice.choice((0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 300))
        options["exif"] = exif if dice.random() < 0.8 else b"Exif\0\0MM\0*" + dice.randbytes(20)
    if dice.random() < 0.2 and image.mode in ("P", "L", "RGB", "1"):
        options["transparency"] = (1, 2, 3) if image.mode == "RGB" else dice.choice((0, 1, 255))
    if dice.random() < 0.2:
        options |= {"save_all": True, "append_images": [image.copy() for _ in range(dice.randint(1, 3))]}
    if dice.random() < 0.2:
        compression = dice.choice(("tiff_lzw", "group4", "jpeg", "tiff_adobe_deflate", "packbits"))
        # libtiff's encoders for faxes and photographs write outside their memory when a pixel is none of theirs.
        fits = {"group4": ("1",), "jpeg": ("L", "RGB")}.get(compression, (image.mode,))
        options["compression"] = compression if image.mode in fits else "packbits"
    return encode(image, dice, options)


def encode(image: Image.Image, dice: random.Random, options: dict[str, Any]) -> bytes:
    """By the first of the formats, in any order, that takes the image and the options; PNG takes the rest."""
    for name in [*dice.sample(FORMATS, 4), "TIFF", "PNG"]:
        # Pillow's AVIF encoder crashes on some metadata.
        for extra in (options, {}) if name != "AVIF" else ({},):
            try:
                file = io.BytesIO()
                image.save(file, format=name, **extra)
                return file.getvalue()
            except Exception:  # many modes and options fit no format
                continue
    file = io.BytesIO()
    Image.new("RGB", image.size).save(file, format="PNG")
    return file.getvalue()


def check_pdfs(folder: Path, seeds: range) -> tuple[int, int]:
    came = failed = 0
    path = folder / "x.pdf"
    for seed in seeds:
        dice = random.Random(seed)
        data, password = random_pdf(dice), None
        whole = dice.random() < 0.5
        if dice.random() < 0.2:
            data, password = encrypted(data, dice)
        path.write_bytes(data if whole else damaged(data, dice))
        good, bad = drain(path, dice, password)
        # What was written whole must be read whole.
        assert not (whole and bad), f"seed {seed}"
        came, failed = came + good, failed + bad
    return came, failed


def check_images(folder: Path, seeds: range) -> tuple[int, int]:
    came = failed = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in seeds:
            dice = random.Random(seed)
            path = folder / f"x{dice.choice(SUFFIXES)}"
            data = random_image(dice)
            path.write_bytes(data if dice.random() < 0.5 else damaged(data, dice))
            good, bad = drain(path, dice)
            came, failed = came + good, failed + bad
    return came, failed


def check_junk(folder: Path, seeds: range) -> tuple[int, int]:
    """Signatures of everything that is known, followed by nonsense."""
    heads = (
        b"%PDF-1.7\n",
        b"\x89PNG\r\n\x1a\n",
        b"\xff\xd8\xff\xe0",
        b"GIF89a",
        b"II*\0",
        b"MM\0*",
        b"BM",
        b"RIFF....WEBP",
    )
    heads += (
        b"\0\0\0\x0cjP  \r\n\x87\n",
        b"P6 3 3 255\n",
        b"\0\0\0\x18ftypheic",
        b"\0\0\0\x18ftypavif",
        b"8BPS\0\1",
        b"qoif",
        b"",
    )
    failed = 0
    for seed in seeds:
        dice = random.Random(seed)
        path = folder / f"x{dice.choice(SUFFIXES)}"
        path.write_bytes(dice.choice(heads) + dice.randbytes(dice.randint(0, 3000)))
        failed += drain(path, dice)[1]
    return 0, failed


Check = Callable[[Path, range], tuple[int, int]]


@pytest.mark.parametrize(("check", "count"), [(check_pdfs, 60), (check_images, 150), (check_junk, 100)])
def test_some_files(tmp_path: Path, check: Check, count: int) -> None:
    came, failed = check(tmp_path, range(count))
    # The test would say nothing if all of them were of one kind.
    assert failed > count // 20
    assert check is check_junk or came > count // 4


@pytest.mark.slow
@pytest.mark.parametrize("check", [check_pdfs, check_images, check_junk])
def test_ten_thousand_files(tmp_path: Path, check: Check) -> None:
    came, failed = check(tmp_path, range(1_000, 11_000))
    print(f"{check.__name__}: {came} pages came, {failed} files or pages were refused")
