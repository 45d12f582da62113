"""The character set and the way other text is brought into it."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mineru_diffusion.synthesis.charset import CHARSET, REPLACEMENT, normalise


def test_each_character_once_and_composed() -> None:
    assert len(set(CHARSET)) == len(CHARSET)
    assert all(unicodedata.normalize("NFC", c) == c for c in CHARSET)
    assert 250 <= len(CHARSET) <= 400


def test_the_whole_set_survives() -> None:
    assert normalise(CHARSET) == CHARSET


@pytest.mark.parametrize(
    ("given_text", "wanted"),
    [
        ("e\u0301te\u0301", "été"),
        ("o\ufb03ce \ufb01n", "office fin"),
        ("10\u00a0\u00b5m\u2009wide", "10 μm wide"),
        ("soft\u00adhyphen, zero\u200bwidth", "softhyphen, zerowidth"),
        ("a\r\nb\u2028c", "a\nb\nc"),
        ("漢", REPLACEMENT),
        ("x \u2010 y", "x - y"),
        ("\u212b \u2126", "Å Ω"),
    ],
)
def test_known_cases(given_text: str, wanted: str) -> None:
    assert normalise(given_text) == wanted


@given(st.text())
def test_closed_and_idempotent(text: str) -> None:
    once = normalise(text)
    assert set(once) <= {*CHARSET, "\n", REPLACEMENT}
    assert normalise(once) == once


@given(st.text(), st.text())
def test_canonically_equal_texts_become_equal(left: str, right: str) -> None:
    text = left + right
    assert normalise(unicodedata.normalize("NFD", text)) == normalise(text)
