"""Finished pages on disk: what is kept, and what a stopped process may leave behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mineru_diffusion.document.types import Page, Region
from mineru_diffusion.parsing.journal import JOURNAL, Journal, read_journal
from mineru_diffusion.parsing.progress import Counters
from mineru_diffusion.parsing.record import PageResult

PARSED = {"sha256": "1", "dpi": 200.0}


def result(index: int, text: str = "words", **changes: object) -> PageResult:
    region = Region("title", (0, 0.125, 1, 0.5), content=text, confidence=0.5, source={"layout": "x"}, warnings=("w",))
    page = Page(index, 10, 20, (region,))
    return PageResult(page, {0: 12.5}, ("a note",), Counters(pages=1, crops=1, tokens=5, passes=2), **changes)  # type: ignore[arg-type]


def test_pages_come_back_as_they_were(tmp_path: Path) -> None:
    journal = Journal(tmp_path, PARSED)
    pages = {index: result(index, f"\u8868 \u2028\r\n {index}") for index in (2, 0)}
    for page in pages.values():
        journal.add(page)
    assert read_journal(tmp_path, PARSED) == pages
    journal.close()
    again = Journal(tmp_path, PARSED)
    again.add(result(1))
    again.close()
    assert read_journal(tmp_path, PARSED) == {**pages, 1: result(1)}
    again.remove()
    assert not (tmp_path / JOURNAL).exists()


def test_what_failed_is_not_kept(tmp_path: Path) -> None:
    journal = Journal(tmp_path, PARSED)
    journal.add(PageResult(Page(0, 0, 0, error="damaged")))
    journal.add(PageResult(Page(1, 9, 9, (Region("text", (0, 0, 1, 1), finish_reason="error"),))))
    journal.close()
    assert read_journal(tmp_path, PARSED) == {}


def test_another_content_or_option_starts_afresh(tmp_path: Path) -> None:
    journal = Journal(tmp_path, PARSED)
    journal.add(result(0))
    journal.close()
    other = {**PARSED, "dpi": 100.0}
    assert read_journal(tmp_path, other) == {}
    Journal(tmp_path, other).close()
    assert read_journal(tmp_path, PARSED) == {}
    Journal(tmp_path, other, fresh=True).close()
    assert read_journal(tmp_path, other) == {}


@given(st.integers(0, 4000), st.binary(max_size=20))
def test_a_journal_that_was_cut_anywhere_gives_whole_pages_and_goes_on(
    tmp_path_factory: pytest.TempPathFactory, cut: int, rest: bytes
) -> None:
    folder = tmp_path_factory.mktemp("journal")
    journal = Journal(folder, PARSED)
    for index in range(3):
        journal.add(result(index))
    journal.close()
    path = folder / JOURNAL
    path.write_bytes(path.read_bytes()[:cut] + rest)
    known = read_journal(folder, PARSED)
    assert all(known[index] == result(index) for index in known)
    again = Journal(folder, PARSED)
    again.add(result(7))
    again.close()
    assert read_journal(folder, PARSED) == {**known, 7: result(7)}
