"""Text of lines: lengths, splits, and that every character comes up."""

from __future__ import annotations

import numpy as np
import pytest

from mineru_diffusion.errors import UsageError
from mineru_diffusion.synthesis.charset import CHARSET
from mineru_diffusion.synthesis.text import TextSampler
from mineru_diffusion.synthesis.vulgar import is_vulgar
from mineru_diffusion.synthesis.words import LANGUAGES, has_held_out, letter_runs, vocabulary

pytest.importorskip("wordfreq")


def draw(split: str, count: int, low: int = 1, high: int = 70, seed: int = 0) -> list[str]:
    sampler, rng = TextSampler(split=split), np.random.default_rng(seed)
    return [sampler.sample(rng, low, high) for _ in range(count)]


def test_same_generator_same_text() -> None:
    assert draw("train", 50, seed=3) == draw("train", 50, seed=3)
    assert draw("train", 50, seed=3) != draw("train", 50, seed=4)


@pytest.mark.parametrize(("low", "high"), [(1, 1), (1, 4), (10, 12), (1, 70), (60, 70), (200, 220)])
def test_lengths_and_spaces(low: int, high: int) -> None:
    for text in draw("train", 150, low, high):
        assert low <= len(text) <= high
        assert text == " ".join(text.split())
        assert set(text) <= set(CHARSET)


def test_lengths_spread_evenly() -> None:
    counts = np.histogram([len(t) for t in draw("train", 2000)], bins=7, range=(1, 71))[0]
    assert counts.min() > 0.6 * counts.mean()


def test_every_character_comes_up() -> None:
    assert set("".join(draw("train", 8000, 20, 70))) == set(CHARSET)


def test_training_text_has_no_held_out_word() -> None:
    assert not any(map(has_held_out, draw("train", 2000)))


def test_held_out_text_has_a_held_out_word_where_it_has_words() -> None:
    texts = draw("heldout", 500, 5, 70)
    assert all(has_held_out(t) for t in texts if letter_runs(t))
    assert sum(map(has_held_out, texts)) > 300


def test_vulgar_words_are_told_from_those_that_look_like_them() -> None:
    assert all(map(is_vulgar, ("Fucking", "shit", "scheiße", "Arschloch", "putain", "gilipollas", "stronzo", "dick's")))
    decent = "assess cocktail Dickens fickle peacock therapist trafficking analyse retard molestia regina martillo bite"
    assert not any(map(is_vulgar, decent.split()))


@pytest.mark.parametrize("held_out", [False, True])
def test_vocabularies_have_no_vulgar_word_and_are_whole(held_out: bool) -> None:
    for language in LANGUAGES:
        found = vocabulary(language, held_out)
        assert not any(map(is_vulgar, found.words))
        assert len(found.words) == len(found.cumulative) > 1000
        assert found.cumulative[-1] == 1.0
        assert (np.diff(found.cumulative) > 0).all()


def test_bad_arguments() -> None:
    with pytest.raises(UsageError, match="split"):
        TextSampler(split="validation")
    with pytest.raises(UsageError, match="length range"):
        TextSampler().sample(np.random.default_rng(0), 5, 4)
