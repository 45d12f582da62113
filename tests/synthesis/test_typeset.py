"""The fast way of setting a line (kept glyphs, laid side by side) against the plain one (Pillow draws the string)."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image, ImageDraw

from mineru_diffusion.synthesis.faces import LIGATURES, Face
from mineru_diffusion.synthesis.fonts import FALLBACK, coverage, discover_fonts
from mineru_diffusion.synthesis.typeset import typeset

TEXT = "Jag, (fjord) WAVE & 0123"


@pytest.mark.parametrize("number", range(6))
def test_same_ink_as_pillow(number: int) -> None:
    fonts = [FALLBACK, *(f for f in discover_fonts()[:110] if coverage(f).issuperset(TEXT))]
    face = Face(fonts[number * 17 % len(fonts)], 36)
    ink = typeset([(TEXT, face)])
    plain = Image.new("L", (ink.canvas.shape[1], ink.canvas.shape[0]))
    ImageDraw.Draw(plain).text((ink.edges[0, 0], ink.baseline), TEXT, fill=255, font=face.font, anchor="ls")
    difference = np.abs(np.asarray(plain, dtype=int) - ink.canvas)
    # Not quite nothing: where letters overlap, Pillow adds their ink up.
    assert difference.mean() < 0.002 * ink.canvas.mean()


def test_gaps_move_what_follows() -> None:
    face = Face(FALLBACK, 32)
    plain, wide = typeset([("a b c", face)]), typeset([("a b c", face)], gaps=np.array([0.0, 7, 0, 7, 0]))
    np.testing.assert_allclose(wide.edges[:, 0] - plain.edges[:, 0], [0, 0, 7, 7, 14])
    assert wide.canvas.sum() == plain.canvas.sum()


def test_runs_follow_each_other() -> None:
    face = Face(FALLBACK, 32)
    whole, parts = typeset([("no ink", face)]), typeset([("no", face), (" ink", face)])
    np.testing.assert_array_equal(whole.canvas, parts.canvas)
    np.testing.assert_array_equal(whole.edges, parts.edges)


def test_oversampling_keeps_positions() -> None:
    face = Face(FALLBACK, 60)
    large, reduced = typeset([(TEXT, face)]), typeset([(TEXT, face)], reduce=2)
    width = large.edges[-1, 1] - large.edges[0, 0]
    assert reduced.edges[-1, 1] - reduced.edges[0, 0] == pytest.approx(width / 2)
    assert reduced.canvas.sum() == pytest.approx(large.canvas.sum() / 4, rel=0.01)
    first_row = np.flatnonzero(large.canvas.max(axis=1))[0] - large.baseline
    assert np.flatnonzero(reduced.canvas.max(axis=1))[0] - reduced.baseline == pytest.approx(first_row / 2, abs=1)


def faces_with(characters: str) -> list[Face]:
    return [Face(font, 40) for font in discover_fonts()[:300] if Face(font, 40).covers(characters)]


@pytest.mark.parametrize(("letters", "ligature"), LIGATURES.items())
def test_letters_of_a_ligature_share_its_glyph(letters: str, ligature: str) -> None:
    faces = [face for face in faces_with("o" + ligature) if face.joined(letters) == [letters]]
    if not faces:
        pytest.skip(f"no font at hand draws {letters} as one glyph")
    for face in faces[:5]:
        joined, same = typeset([(f"o{letters}o", face)], ligatures=True), typeset([(f"o{ligature}o", face)])
        np.testing.assert_array_equal(joined.canvas, same.canvas)
        assert len(joined.edges) == len(letters) + 2
        widths = np.diff(joined.edges[1:-1], axis=1)
        assert np.ptp(widths) <= 1  # pens stand on whole pixels
        np.testing.assert_array_equal(joined.edges[[0, -1]], same.edges[[0, -1]])


def test_ligatures_only_where_asked_and_never_in_typewriter_faces() -> None:
    for face in faces_with("ﬁfi")[:60]:
        plain = typeset([("fit", face)])
        assert len(plain.edges) == 3
        if face.font.getlength("i") == face.font.getlength("m"):
            np.testing.assert_array_equal(typeset([("fit", face)], ligatures=True).canvas, plain.canvas)


def test_joined_loses_no_letter() -> None:
    for face in faces_with("ﬁ")[:40]:
        assert "".join(face.joined("offfilffle fi ff fj")) == "offfilffle fi ff fj"
