"""olmOCR-bench: small facts about a page that its Markdown either gets right or not.

In: a file of tests, one JSON object a line, and a page's Markdown. Out: passes by type. Types: `present` and `absent`
text, `order` of two texts, a `table` cell with its neighbours and headings, and `math`.

After the benchmark's published definition (allenai/olmocr, `olmocr/bench`): `max_diffs` allowed errors become a
threshold of rapidfuzz's partial ratio for text and ratio for cells, and a maximal edit distance for order. One
difference: the benchmark renders formulas in a browser and compares the places of their symbols; here a formula passes
when its canonical LaTeX tokens stand in one of the page's formulas.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mineru_diffusion.errors import MissingExtra, UsageError
from mineru_diffusion.evaluation.formulas import canonical_tokens
from mineru_diffusion.evaluation.olmocr_tables import Neighbours, tables_in

try:
    from fuzzysearch import find_near_matches
    from rapidfuzz import fuzz
except ImportError as error:
    raise MissingExtra("olmOCR-bench", "eval") from error

TYPES = ("present", "absent", "order", "table", "math")
_NEEDED = {
    "present": ("text",),
    "absent": ("text",),
    "order": ("before", "after"),
    "table": ("cell",),
    "math": ("math",),
}
_SIDES = ("up", "down", "left", "right")
_MARKS = str.maketrans(
    {"‘": "'", "’": "'", "‚": "'", "“": '"', "”": '"', "„": '"', "＿": "_", "µ": "μ"} | dict.fromkeys("–—‑‒−", "-")
)
_FORMULA = re.compile(r"\\\((.+?)\\\)|\\\[(.+?)\\\]|\$\$(.+?)\$\$|\$(.+?)\$", re.DOTALL)
_SIZES = frozenset({r"\left", r"\right", r"\big", r"\Big", r"\bigg", r"\Bigg"})


@dataclass(frozen=True)
class BenchTest:
    """One fact: the document's file name, the page from 1, and the test's own fields."""

    id: str
    pdf: str
    page: int
    type: str
    fields: Mapping[str, Any]

    def passes(self, markdown: str) -> bool:
        """The page's Markdown gets it right."""
        return _CHECKS[self.type](self, markdown)

    @property
    def max_diffs(self) -> int:
        """Characters that may differ."""
        return int(self.fields.get("max_diffs", 0))

    def text(self, name: str) -> str:
        """A field in the normal form in which texts are compared; "" if it is not there."""
        return normalise_text(str(self.fields.get(name) or ""))


@dataclass(frozen=True)
class BenchScore:
    """Results of a run.

    Attributes:
        passed, total: number of tests by type.
        failed: ids of tests that did not pass.
        missing: documents without Markdown; their tests are in no other figure.
    """

    passed: Mapping[str, int]
    total: Mapping[str, int]
    failed: tuple[str, ...]
    missing: tuple[str, ...]


def normalise_text(text: str) -> str:
    """White space as single blanks, emphasis marks dropped, NFC, typographic quotes and dashes as ASCII."""
    text = re.sub(r"<br\s*/?>", " ", text)
    text = re.sub(r"</?[bi]>", "", text)
    for mark in (r"\*\*", "__", r"\*", "_"):
        text = re.sub(f"{mark}(.*?){mark}", r"\1", text)
    text = re.sub(r"\s+", " ", text)
    return unicodedata.normalize("NFC", text).translate(_MARKS)


def load_tests(path: Path) -> list[BenchTest]:
    """All tests of a file.

    Raises:
        UsageError: the file cannot be read, or a line is no test of a known type.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read as a file of tests: {error}") from error
    tests: list[BenchTest] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            kind = row["type"]
            test = BenchTest(str(row["id"]), str(row["pdf"]), int(row["page"]), kind, row)
            lacking = [name for name in _NEEDED[kind] if not test.text(name).strip()]
        except (ValueError, KeyError, TypeError) as error:
            problem = f"not a test of type {', '.join(TYPES)} ({error!r})"
            raise UsageError(f"{path}, line {number}: {problem}; is this olmOCR-bench's JSONL?") from error
        if lacking:
            raise UsageError(f"{path}, line {number}: the {kind} test has no {', '.join(lacking)}; give it one")
        tests.append(test)
    return tests


def score_tests(tests: Iterable[BenchTest], markdown_of: Callable[[str, int], str | None]) -> BenchScore:
    """Run tests on Markdown by (document, page from 1); None where there is none."""
    passed, total = dict.fromkeys(TYPES, 0), dict.fromkeys(TYPES, 0)
    failed: list[str] = []
    missing: dict[str, None] = {}
    for test in tests:
        markdown = markdown_of(test.pdf, test.page)
        if markdown is None:
            missing[test.pdf] = None
            continue
        total[test.type] += 1
        if test.passes(markdown):
            passed[test.type] += 1
        else:
            failed.append(test.id)
    return BenchScore(passed, total, tuple(failed), tuple(missing))


def markdown_files(folder: Path) -> Callable[[str, int], str | None]:
    """Looks Markdown up in a folder: `NAME_pgN.md` (also `NAME_pgN_repeat1.md`, the benchmark's own names), else
    `NAME.md`, anywhere below it; also where the file's name has a prefix that ends in a hyphen.

    Raises:
        UsageError: there is no Markdown in the folder.
    """
    files = {path.stem: path for path in sorted(folder.rglob("*.md"))}
    if not files:
        raise UsageError(f"{folder}: no Markdown files in it; give the folder that `parse` wrote")

    def find(pdf: str, page: int) -> str | None:
        stem = Path(pdf).stem
        for name in (f"{stem}_pg{page}", f"{stem}_pg{page}_repeat1", stem):
            path = files.get(name) or next((p for s, p in files.items() if s.endswith(f"-{name}")), None)
            if path is not None:
                return path.read_text(encoding="utf-8")
        return None

    return find


def _near(wanted: str, found: float, max_diffs: int, least: float = 0.0) -> bool:
    return found / 100 >= max(least, 1 - max_diffs / len(wanted))


def _occurs(test: BenchTest, markdown: str) -> bool:
    wanted, text = test.text("text"), normalise_text(markdown)
    if not test.fields.get("case_sensitive", True):
        wanted, text = wanted.lower(), text.lower()
    first, last = test.fields.get("first_n"), test.fields.get("last_n")
    if first or last:
        text = (text[:first] if first else "") + (text[-last:] if last else "")
    # Of two strings partial_ratio looks for the shorter one in the longer: too short a text would contain anything.
    if len(text) < len(wanted) - test.max_diffs:
        return False
    return _near(wanted, fuzz.partial_ratio(wanted, text), test.max_diffs)


def _in_order(test: BenchTest, markdown: str) -> bool:
    text = normalise_text(markdown)
    before, after = (
        [match.start for match in find_near_matches(test.text(name), text, max_l_dist=test.max_diffs)]
        for name in ("before", "after")
    )
    return bool(before and after) and min(before) < max(after)


def _has_cell(test: BenchTest, markdown: str) -> bool:
    wanted = test.text("cell")
    for table in tables_in(markdown):
        neighbours = Neighbours(table)
        for cell in table.cells:
            if not _near(wanted, fuzz.ratio(wanted, normalise_text(cell.text)), test.max_diffs, 0.5):
                continue
            around = {side: neighbours.beside(cell, side) for side in _SIDES}  # type: ignore[arg-type]
            around["top_heading"] = neighbours.headings(cell, "up")
            around["left_heading"] = neighbours.headings(cell, "left")
            if all(_says(cells, test.text(name), test.max_diffs) for name, cells in around.items()):
                return True
    return False


def _says(cells: Sequence[Any], wanted: str, max_diffs: int) -> bool:
    if not wanted:
        return True
    return any(_near(wanted, fuzz.ratio(wanted, normalise_text(cell.text)), max_diffs, 0.5) for cell in cells)


def _has_formula(test: BenchTest, markdown: str) -> bool:
    wanted = _symbols(str(test.fields["math"]))
    for match in _FORMULA.finditer(markdown):
        symbols = _symbols(next(filter(None, match.groups())))
        if any(symbols[i : i + len(wanted)] == wanted for i in range(len(symbols) - len(wanted) + 1)):
            return True
    return False


def _symbols(latex: str) -> list[str]:
    return [token for token in canonical_tokens(latex) if token not in _SIZES]


_CHECKS: dict[str, Callable[[BenchTest, str], bool]] = {
    "present": _occurs,
    "absent": lambda test, markdown: not _occurs(test, markdown),
    "order": _in_order,
    "table": _has_cell,
    "math": _has_formula,
}
