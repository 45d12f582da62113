"""Lines to paragraphs, lists and code."""

from __future__ import annotations

from mineru_diffusion.parsing.headings import Heading, heading_levels
from mineru_diffusion.parsing.lines import TextLine
from mineru_diffusion.parsing.text_blocks import code_block, list_items, paragraphs, split_lists


def line(
    left: int = 0, *, right: int = 500, indented: bool = False, short: bool = False, spaced: bool = False
) -> TextLine:
    box = (left, 0, right, 20)
    return TextLine(box, (box,), 18, 15, indented=indented, short=short, spaced=spaced)


FULL, INDENTED, SHORT, SPACED = line(), line(20, indented=True), line(right=200, short=True), line(spaced=True)


def test_one_paragraph_without_hyphens() -> None:
    assert paragraphs([FULL, FULL, SHORT], ["The infor-", "mation is", "here."]) == ["The information is here."]


def test_indents_and_gaps_begin_paragraphs() -> None:
    texts = ["one", "two", "three", "four"]
    assert paragraphs([INDENTED, FULL, INDENTED, FULL], texts) == ["one two", "three four"]
    assert paragraphs([FULL, FULL, SPACED, FULL], texts) == ["one two", "three four"]
    assert paragraphs([INDENTED, FULL, INDENTED, FULL], texts, one=True) == ["one two three four"]


def test_short_lines_end_paragraphs_only_in_justified_text() -> None:
    texts = ["A long line", "ends.", "Another line", "goes on", "and on"]
    assert paragraphs([FULL, SHORT, FULL, FULL, FULL], texts) == ["A long line ends.", "Another line goes on and on"]
    assert len(paragraphs([SHORT, SHORT, FULL, SHORT, SHORT], texts)) == 1
    texts[1] = "comma,"
    assert len(paragraphs([FULL, SHORT, FULL, FULL, FULL], texts)) == 1


def test_hanging_indents_begin_at_the_margin() -> None:
    lines = [FULL, INDENTED, INDENTED, FULL, INDENTED]
    assert paragraphs(lines, ["Abel", "writes", "this", "Bell", "that"]) == ["Abel writes this", "Bell that"]
    assert list_items(lines, ["Abel", "writes", "this", "Bell", "that"]) == ["Abel writes this", "Bell that"]


def test_a_list_inside_running_text_is_found() -> None:
    lines = [line(), line(10), line(30), line(10), line()]
    texts = ["The round was simple:", "• light the", "lamp", "• clean the lens", "The books survive."]
    assert split_lists(lines, texts) == [(False, 0, 1), (True, 1, 4), (False, 4, 5)]
    assert list_items(lines[1:4], texts[1:4]) == ["• light the lamp", "• clean the lens"]


def test_items_that_are_set_in_are_nested() -> None:
    lines = [line(), line(40), line(60), line(40), line()]
    texts = ["• one", "– deep", "and on", "– deep too", "• two"]
    assert list_items(lines, texts) == ["• one", "  – deep and on", "  – deep too", "• two"]


def test_numbers_must_count_up() -> None:
    lines = [line()] * 3
    assert split_lists(lines, ["1. one", "2. two", "3. three"]) == [(True, 0, 3)]
    assert split_lists(lines, ["1. one", "and", "7. of May"]) == [(False, 0, 3)]
    assert split_lists(lines, ["a) one", "b) two", "c) three"]) == [(True, 0, 3)]
    assert split_lists(lines, ["- one dash", "is no", "list"]) == [(False, 0, 3)]


def test_code_keeps_lines_and_indentation() -> None:
    lines = [made.box for made in (line(0, right=120), line(40, right=160), line(0, right=10))]
    assert code_block(lines, ["def f(x):ab", "return x+1 a", "z"]) == "def f(x):ab\n    return x+1 a\nz"
    assert code_block([], []) == ""


def test_heading_levels_by_size() -> None:
    made = [
        Heading("A Paper", 20, True),
        Heading("Start", 12, True),
        Heading("Detail", 9, True),
        Heading("End", 12.5, False),
    ]
    assert heading_levels(made) == [1, 2, 3, 2]


def test_headings_of_one_size_are_sections() -> None:
    assert heading_levels([Heading("A", 12, True), Heading("B", 12.4, False)]) == [2, 2]
    assert heading_levels([Heading("Later only", 12, False)]) == [2]
    assert heading_levels([]) == []


def test_numbered_headings_go_by_their_numbers() -> None:
    made = [
        Heading("Title", 20, True),
        Heading("1 Intro", 12, True),
        Heading("1.1 Past", 12, True),
        Heading("2.1.3. Deep", 12, False),
    ]
    assert heading_levels(made) == [1, 2, 3, 4]


def test_headings_with_names_letters_and_roman_numbers() -> None:
    texts = ["Paper", "I. INTRODUCTION", "II. METHOD", "A. Data", "B. Model", "Appendix A Proofs", "Chapter 3: End"]
    made = [Heading(text, 12 + 8 * (i == 0), True) for i, text in enumerate(texts)]
    assert heading_levels(made) == [1, 2, 2, 3, 3, 2, 2]
    # One letter and a dot alone may be a name.
    assert heading_levels([Heading("Title", 20, True), Heading("I. Newton", 12, True)]) == [1, 2]


def test_unknown_heights_never_break_levels() -> None:
    assert all(1 <= level <= 6 for level in heading_levels([Heading(str(i), 0.0, True) for i in range(9)]))
    assert max(heading_levels([Heading("x", 100 / (i + 1), True) for i in range(12)])) == 6
