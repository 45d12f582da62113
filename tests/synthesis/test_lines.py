"""Rendered lines: exactly repeatable, with truth that fits the picture."""

from __future__ import annotations

import pickle
from itertools import islice
from unittest.mock import patch

import numpy as np
import pytest
from PIL import Image

from mineru_diffusion.errors import UsageError
from mineru_diffusion.synthesis.faces import Face
from mineru_diffusion.synthesis.fonts import FALLBACK, discover_fonts
from mineru_diffusion.synthesis.lines import LineRenderer, LineSample, LineStream, Setting
from mineru_diffusion.synthesis.sheet import contact_sheet
from mineru_diffusion.synthesis.typeset import typeset

pytest.importorskip("wordfreq")


def take(stream: LineStream, count: int) -> list[LineSample]:
    return list(islice(stream, count))


def assert_equal(left: list[LineSample], right: list[LineSample]) -> None:
    for a, b in zip(left, right, strict=True):
        assert (a.text, a.font) == (b.text, b.font)
        np.testing.assert_array_equal(a.image, b.image)
        np.testing.assert_array_equal(a.char_x, b.char_x)


@pytest.fixture(scope="module")
def samples() -> list[LineSample]:
    return take(LineStream(seed=5), 300)


def test_shapes_and_edges(samples: list[LineSample]) -> None:
    for sample in samples:
        assert sample.image.shape[0] == 32
        assert sample.image.dtype == np.uint8
        assert sample.char_x.dtype == np.float32
        assert sample.char_x.shape == (len(sample.text), 2)
        assert (np.diff(sample.char_x, axis=0) >= 0).all()
        assert (sample.char_x[:, 1] >= sample.char_x[:, 0]).all()
        assert sample.char_x.min() >= 0
        assert sample.char_x.max() <= sample.image.shape[1]
        assert int(sample.image.max()) - int(sample.image.min()) > 40


def test_determined_by_arguments(samples: list[LineSample]) -> None:
    assert_equal(take(LineStream(seed=5), 20), samples[:20])
    assert [s.text for s in take(LineStream(seed=6), 20)] != [s.text for s in samples[:20]]


def test_any_line_can_be_drawn_alone(samples: list[LineSample]) -> None:
    assert_equal([LineStream(seed=5).sample(170)], [samples[170]])


def test_pickling_keeps_the_stream(samples: list[LineSample]) -> None:
    stream = LineStream(seed=5)
    take(stream, 3)
    assert_equal(take(pickle.loads(pickle.dumps(stream)), 5), samples[:5])


def test_edges_lie_around_the_ink() -> None:
    """Far apart, clean, upright letters: each must have its ink between its own edges and none in the spaces."""
    renderer = LineRenderer([FALLBACK], degrade=0.0)
    text = "H   I   E   L   N   H   T"
    for seed in range(40):
        sample = renderer.render(text, np.random.default_rng(seed))
        grey = sample.image.astype(float)
        amount = np.abs(grey - np.median(grey))[6:-6].max(axis=0)
        if (amount > 60).mean() > 0.9:
            continue  # an underline or a frame hides what this test looks at
        for character, (left, right) in zip(text, sample.char_x, strict=True):
            if character == " ":
                continue
            inside = amount[int(left) : int(np.ceil(right))]
            assert inside.max() > 60, (seed, character)
        gaps = [amount[int(a) + 2 : int(b) - 1] for a, b in sample.char_x[text.index(" ") : 4] if b - a > 4]
        assert all(gap.max(initial=0) < 60 for gap in gaps), seed


def test_without_damage_most_pixels_are_plain_paper() -> None:
    def plain(degrade: float) -> float:
        images = [s.image for s in take(LineStream(seed=1, degrade=degrade, min_chars=8), 150)]
        return float(np.mean([np.bincount(i.ravel()).max() / i.size for i in images]))

    assert plain(0.0) > plain(1.0) + 0.1


def test_without_damage_no_ink_of_other_lines_shows() -> None:
    clean = take(LineStream(seed=12, degrade=0, min_chars=20, max_chars=40), 60)
    usual = take(LineStream(seed=12, degrade=1, min_chars=20, max_chars=40, worn_share=0), 60)

    def inked_edges(sample: LineSample) -> bool:
        edge = np.concatenate([sample.image[0], sample.image[-1]])
        return bool((np.median(sample.image) - edge.astype(float) > 60).mean() > 0.1)

    assert sum(map(inked_edges, usual)) > 3 * sum(map(inked_edges, clean))


def test_only_the_bundled_font() -> None:
    for split in ("train", "heldout"):
        for sample in take(LineStream(seed=2, split=split, fonts=[FALLBACK]), 60):
            assert sample.font == FALLBACK.name
            assert sample.text == " ".join(sample.text.split())


def test_splits_use_other_families() -> None:
    if len({f.family for f in discover_fonts()}) < 60:
        pytest.skip("too few families on this machine for both splits to have some")
    train = {s.font for s in take(LineStream(seed=3, max_chars=10), 200)}
    held_out = {s.font for s in take(LineStream(seed=3, max_chars=10, split="heldout"), 200)}
    assert not train & held_out


def test_other_heights() -> None:
    assert {s.image.shape[0] for s in take(LineStream(seed=1, height=48), 10)} == {48}


def test_bad_arguments() -> None:
    with pytest.raises(UsageError, match="fonts"):
        LineRenderer([])
    with pytest.raises(UsageError, match="height"):
        LineRenderer([FALLBACK], height=0)
    with pytest.raises(UsageError, match="length range"):
        LineStream(seed=0, min_chars=9, max_chars=3)
    with pytest.raises(UsageError, match="seed"):
        LineStream(seed=-1)
    with pytest.raises(UsageError, match="outer spaces"):
        LineRenderer([FALLBACK]).render(" x", np.random.default_rng(0))
    with pytest.raises(UsageError, match="more fonts"):
        LineRenderer([FALLBACK]).render("\u6f22", np.random.default_rng(0))


def test_contact_sheet_shows_every_line(samples: list[LineSample]) -> None:
    sheet = contact_sheet(samples[:7], columns=2, ticks=True)
    assert isinstance(sheet, Image.Image)
    assert sheet.width >= 2 * max(s.image.shape[1] for s in samples[:7])
    assert sheet.height >= 4 * 32
    with pytest.raises(UsageError, match="at least one"):
        contact_sheet([], 2)


def test_lines_show_ligatures_now_and_then() -> None:
    fonts = [f for f in discover_fonts() if Face(f, 42).covers("ﬁ") and Face(f, 42).joined("fi") == ["fi"]][:1]
    if not fonts:
        pytest.skip("no font at hand draws fi as one glyph")
    renderer = LineRenderer(fonts, degrade=0)
    rng = np.random.default_rng(0)
    setting = Setting(fonts[0], 42, 1)
    with patch("mineru_diffusion.synthesis.lines.typeset", wraps=typeset) as drawing:
        for _ in range(60):
            renderer.render_in(setting, "five firm figs", rng)
            renderer.render_in(setting, "no such letters", rng)
    wanted = [call.kwargs["ligatures"] for call in drawing.call_args_list]
    assert not any(wanted[1::2])
    assert 25 < sum(wanted[::2]) < 55
