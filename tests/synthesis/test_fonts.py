"""Faces found on any machine, even one without fonts."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from mineru_diffusion.errors import UsageError
from mineru_diffusion.synthesis import fonts as fonts_module
from mineru_diffusion.synthesis.faces import Face, FontSpec
from mineru_diffusion.synthesis.fonts import FALLBACK, coverage, discover_fonts, select_fonts


def test_something_usable_is_always_found() -> None:
    fonts = discover_fonts()
    assert fonts
    for font in fonts[:5]:
        assert coverage(font).issuperset("The quick brown fox, 0123456789.")


def test_a_machine_without_fonts_gets_the_bundled_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(fonts_module.shutil, "which", lambda _: None)
    monkeypatch.setattr(fonts_module, "_system_dirs", lambda: [str(tmp_path)])
    monkeypatch.setattr(fonts_module, "_bundled_dirs", list)
    # A folder of its own, so that the answer kept for other tests is neither used nor lost.
    assert discover_fonts([tmp_path]) == [FALLBACK]


def test_broken_font_files_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "broken.ttf").write_bytes(b"no font at all")
    assert fonts_module._from_folders([tmp_path]) == []


def test_splits_share_no_family() -> None:
    fonts = [FontSpec(f"{n}.ttf", 0, f"Family {n}", style) for n in range(300) for style in ("Regular", "Bold")]
    train, held_out = select_fonts(fonts, "train"), select_fonts(fonts, "heldout")
    assert not {f.family for f in train} & {f.family for f in held_out}
    assert len(train) + len(held_out) == len(fonts)
    assert 0.04 < len(held_out) / len(fonts) < 0.18


def test_a_split_is_never_empty() -> None:
    assert select_fonts([FALLBACK], "heldout") == [FALLBACK]
    with pytest.raises(UsageError, match="split"):
        select_fonts([FALLBACK], "test")


def test_missing_characters_are_noticed() -> None:
    face = Face(FALLBACK, 24)
    assert face.covers("plain text")
    assert not face.covers("\u6f22")
    assert face.glyph("\u6f22") is None


def test_what_looks_like_another_character_is_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    face = Face(FALLBACK, 24)
    draw = face._draw
    assert face.covers("()")
    face = Face(FALLBACK, 24)
    monkeypatch.setattr(face, "_draw", lambda c: draw("(" if c == ")" else c))
    assert face.covers("(")
    assert not face.covers(")")


def test_pens_agree_with_pillow() -> None:
    text = "AVATAR To Type, WAVE. fjord"
    for font in [FALLBACK, *discover_fonts()[:40:8]]:
        face = Face(font, 32)
        # What Pillow draws before character i, kerning with it included.
        wanted = [face.font.getlength(text[: i + 1]) - face.font.getlength(text[i]) for i in range(len(text))]
        np.testing.assert_allclose(face.pens(text), [*wanted, face.font.getlength(text)], atol=1e-3)


def test_specs_travel_between_processes() -> None:
    assert pickle.loads(pickle.dumps(discover_fonts()[0])) == discover_fonts()[0]
