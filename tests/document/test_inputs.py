from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mineru_diffusion.document.inputs import expand_inputs, parse_page_range
from mineru_diffusion.errors import SourceError, UsageError


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("b.pdf", "a.PDF", "deep/x/c.TIF", "deep/note.txt", ".hidden.png", "out/images/crop.png", "odd.dat"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    return tmp_path


def names(paths: list[Path], root: Path) -> list[str]:
    return [path.relative_to(root).as_posix() for path in paths]


def test_folder_is_searched_in_order(tree: Path) -> None:
    found = expand_inputs([tree], exclude=[tree / "out"])
    assert names(found, tree) == ["a.PDF", "b.pdf", "deep/x/c.TIF"]


def test_files_keep_their_order_and_come_once(tree: Path) -> None:
    given = [tree / "odd.dat", tree / "b.pdf", str(tree / "*.pdf"), tree / "deep/../b.pdf"]
    assert names(expand_inputs(given), tree) == ["odd.dat", "b.pdf"]


def test_recursive_glob(tree: Path) -> None:
    assert names(expand_inputs([str(tree / "**" / "*.TIF")]), tree) == ["deep/x/c.TIF"]


def test_what_is_not_there(tree: Path) -> None:
    with pytest.raises(SourceError, match=r"nope\.pdf"):
        expand_inputs([tree / "nope.pdf"])
    with pytest.raises(UsageError, match="matches no document"):
        expand_inputs([str(tree / "*.docx")])
    with pytest.raises(UsageError):
        expand_inputs([])
    (tree / "bare").mkdir()
    with pytest.raises(SourceError, match="holds no PDF"):
        expand_inputs([tree / "bare"])


def test_a_name_with_brackets_is_a_file_first(tmp_path: Path) -> None:
    path = tmp_path / "paper [1].pdf"
    path.touch()
    assert expand_inputs([path]) == [path]


@pytest.mark.parametrize(
    ("spec", "indices"),
    [
        ("2-5", [1, 2, 3, 4]),
        ("3", [2]),
        ("2-", [1, 2, 3, 4, 5]),
        ("1,3-4", [0, 2, 3]),
        (" 4 - 6 , 1", [0, 3, 4, 5]),
        ("2,1-3", [0, 1, 2]),
    ],
)
def test_page_ranges(spec: str, indices: list[int]) -> None:
    assert parse_page_range(spec, 6) == indices


@pytest.mark.parametrize(
    "spec", ["0-0", "0", "5-2", "99", "2-99", "", ",", "1,,2", "a", "1-2-3", "-2", "1.5", "²", "1" * 50, "7-"]
)
def test_bad_page_ranges(spec: str) -> None:
    with pytest.raises(UsageError):
        parse_page_range(spec, 6)


def test_no_range_means_all() -> None:
    assert parse_page_range(None, 3) == [0, 1, 2]


@given(st.text(alphabet="0123456789-, ", max_size=12), st.integers(1, 20))
def test_page_range_is_right_or_refused(spec: str, count: int) -> None:
    try:
        pages = parse_page_range(spec, count)
    except UsageError:
        return
    assert pages
    assert pages == sorted(set(pages))
    assert pages[0] >= 0
    assert pages[-1] < count


@given(st.sets(st.integers(0, 30), min_size=1))
def test_page_range_round_trip(pages: set[int]) -> None:
    assert parse_page_range(",".join(str(page + 1) for page in pages), 31) == sorted(pages)
