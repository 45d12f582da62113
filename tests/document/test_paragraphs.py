from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mineru_diffusion.document.paragraphs import is_continued, join_lines


@pytest.mark.parametrize(
    ("lines", "joined"),
    [
        (["infor-", "mation"], "information"),
        (["state-of-the-", "art"], "state-of-the-art"),
        (["over-", "the-counter drug"], "over-the-counter drug"),
        (["Jean-", "Pierre"], "Jean-Pierre"),
        (["from 1990-", "2000"], "from 1990-2000"),
        (["an e-", "mail"], "an e-mail"),
        (["DNA-", "based"], "DNA-based"),
        (["pre-", "and post-war"], "pre- and post-war"),
        (["the st-", "and was"], "the stand was"),
        (["Ein-", "und Ausgabe"], "Ein- und Ausgabe"),
        (["a -", "b"], "a - b"),
        (["word\u2014", "next"], "word\u2014next"),
        (["word \u2014", "next"], "word \u2014 next"),
        (["a well-known and well-", "known fact"], "a well-known and well-known fact"),
        (["coop", "and co-", "op"], "coop and coop"),
        (["soft\u00ad", "Ware"], "softWare"),
        (["\u7b2c\u4e00", "\u7b2c\u4e8c"], "\u7b2c\u4e00\u7b2c\u4e8c"),
        (["\u7b2c\u4e00", "word"], "\u7b2c\u4e00 word"),
        (["\uc548\ub155", "\ud558\uc138"], "\uc548\ub155 \ud558\uc138"),
        ([" a ", "", "b"], "a b"),
        ([], ""),
        (["-", "x"], "- x"),
    ],
)
def test_join_lines(lines: list[str], joined: str) -> None:
    assert join_lines(lines) == joined


@given(st.lists(st.text(alphabet="abC1- .,\u2010\u2014\u7b2c", max_size=12), max_size=6))
def test_only_hyphens_and_spaces_change(lines: list[str]) -> None:
    def essence(text: str) -> str:
        return "".join(char for char in text if char not in "-\u2010 ")

    joined = join_lines(lines)
    assert essence(joined) == essence("".join(lines))
    assert "\n" not in joined
    assert len(joined) <= sum(len(line) + 1 for line in lines)


@given(st.lists(st.from_regex(r"[a-z]{2,8}", fullmatch=True), min_size=1, max_size=8))
def test_plain_words_are_joined_by_spaces(words: list[str]) -> None:
    assert join_lines(words) == " ".join(words)


def test_is_continued() -> None:
    assert is_continued("The quick brown fox", "jumps over")
    assert is_continued("the quick brown infor-", "mation here")
    assert not is_continued("The quick brown fox.", "jumps over")
    assert not is_continued('He said "the quick brown fox."', "jumps over")
    assert not is_continued("The quick brown fox", "Jumps over")
    assert not is_continued("Two words", "jumps over")
    assert not is_continued("The quick brown fox", "1 jump")
    assert not is_continued("", "x")


def test_continued_in_scripts_without_small_letters_and_after_a_comma() -> None:
    long = "\u4e00" * 24
    assert is_continued(long, "\u4e8c\u4e09")
    assert not is_continued(long + "\u3002", "\u4e8c\u4e09")
    assert not is_continued("\u4e00" * 8, "\u4e8c\u4e09")  # a heading
    assert is_continued("one two three four,", "Smith and others")
    assert is_continued("one two three four of post-", "War and peace")
    assert not is_continued("one two three four", "Smith and others")
