"""Cropping and enlarging against recorded pictures, pixel for pixel (by their hashes)."""

from __future__ import annotations

import hashlib
import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from mineru_diffusion.document.crops import crop_region, layout_image, resize_by_need

HERE = Path(__file__).parent


@cache
def folder() -> Path:
    named = os.environ.get("MINERU_DIFFUSION_PARITY_KIT")
    folders = [Path(named)] if named else []
    folders += [parent.parent / "shared" / "parity" for parent in HERE.parents if (parent / "pyproject.toml").is_file()]
    found = next((path for path in folders if (path / "preproc" / "preproc.json").is_file()), None)
    if found is None:
        pytest.skip("the parity kit is not here; set MINERU_DIFFUSION_PARITY_KIT")
    return found / "preproc"


def helpers(name: str) -> list[dict[str, Any]]:
    rows = json.loads((folder() / "preproc.json").read_text(encoding="utf-8"))["helpers"]
    return [row for row in rows if row["fn"] == name]


def check(image: Image.Image, row: dict[str, Any]) -> bool:
    """True if `image` is the recorded one; sizes that are rounded up where the recorded run rounded may be 1 larger."""
    width, height = row["out_wh"]
    if hashlib.sha256(np.asarray(image).tobytes()).hexdigest() == row["sha256"]:
        assert image.size == (width, height)
        return True
    assert image.width - width in (0, 1)
    assert image.height - height in (0, 1)
    assert image.size != (width, height)
    return False


def test_resize_by_need() -> None:
    rounded_up = []
    for row in helpers("resize_by_need"):
        width, height = row["size_wh"]
        noise = np.random.default_rng(width * 1000 + height).integers(0, 256, (height, width, 3), dtype=np.uint8)
        if not check(resize_by_need(Image.fromarray(noise)), row):
            rounded_up.append((width, height))
    assert rounded_up == [(13, 300), (300, 13)]


def test_crop_region() -> None:
    rounded_up = []
    for row in helpers("crop_block_image"):
        page = Image.open(folder() / "images" / f"{row['page']}.png").convert("RGB")
        if not check(crop_region(page, tuple(row["bbox"]), row["angle"] or 0), row):
            rounded_up.append(row["bbox"])
    assert rounded_up == [[0.0, 0.5, 1.0, 0.501]]


def test_layout_image() -> None:
    for row in helpers("prepare_layout_image"):
        page = Image.open(folder() / "images" / f"{row['page']}.png").convert("RGB")
        squashed = layout_image(page, tuple(row["out_wh"]))
        assert hashlib.sha256(np.asarray(squashed).tobytes()).hexdigest() == row["sha256"]
