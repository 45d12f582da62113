"""Images of chat requests: data URIs and, where allowed, fetched bytes, to RGB images. Nothing local is ever opened."""

from __future__ import annotations

import base64
import binascii
import io
import re
import warnings

from PIL import Image, UnidentifiedImageError

from mineru_diffusion.document.colours import rgb_within, upright
from mineru_diffusion.document.source_types import DEFAULT_MAX_PIXELS
from mineru_diffusion.serving.errors import bad_request

#: Decoders that uploads may reach: none of them runs other programs or follows references.
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")
PARAM = "messages"
_DATA_URI = re.compile(r"data:(?P<mime>[\w.+-]+/[\w.+-]+)?(?:;[\w=.+-]+)*?(?P<base64>;base64)?,", re.ASCII)
_DECODER_ERRORS = (OSError, ValueError, SyntaxError, EOFError, TypeError, IndexError, KeyError, OverflowError)


def decode_data_uri(uri: str) -> bytes:
    """Bytes of a `data:` URI.

    Raises:
        ApiError: it is none, is not base64, or says that it is no image.
    """
    match = _DATA_URI.match(uri[:200])
    if match is None or match["base64"] is None:
        raise bad_request("the image must be a base64 data URI: data:image/png;base64,...", PARAM)
    mime = match["mime"] or "image/png"
    if not mime.startswith("image/") and mime != "application/octet-stream":
        raise bad_request(f"the data URI says {mime}, an image is needed", PARAM)
    try:
        return base64.b64decode(uri[match.end() :], validate=True)
    except (binascii.Error, ValueError) as error:
        raise bad_request("the data URI is not valid base64", PARAM) from error


def image_pixels(data: bytes, limit: int) -> int:
    """Pixels of an encoded image, without decoding it.

    Raises:
        ApiError: no image of a known format, or more pixels than `limit`.
    """
    with _opened(data) as image:
        pixels = image.width * image.height
        if pixels > limit:
            raise bad_request(
                f"the image has {image.width} x {image.height} pixels, the server takes {limit} at most",
                PARAM,
                "image_too_large",
            )
        return pixels


def decode_image(data: bytes) -> Image.Image:
    """The image, upright, in RGB with transparency on white. Its size was checked by `image_pixels`.

    Raises:
        ApiError: it is damaged.
    """
    try:
        with _opened(data) as image:
            return upright(rgb_within(image, DEFAULT_MAX_PIXELS), image)[0]
    except _DECODER_ERRORS as error:
        raise bad_request(f"the image is damaged: {error}", PARAM, "invalid_image") from error


def _opened(data: bytes) -> Image.Image:
    try:
        with warnings.catch_warnings():
            # Our own pixel limit stands in for Pillow's warning; its error is caught below.
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            return Image.open(io.BytesIO(data), formats=FORMATS)
    except Image.DecompressionBombError as error:
        raise bad_request(f"the image is too large: {error}", PARAM, "image_too_large") from error
    except UnidentifiedImageError as error:
        raise bad_request(
            f"the image is of no known format; send one of {', '.join(FORMATS)}", PARAM, "invalid_image"
        ) from error
    except _DECODER_ERRORS as error:
        raise bad_request(f"the image is damaged: {error}", PARAM, "invalid_image") from error
