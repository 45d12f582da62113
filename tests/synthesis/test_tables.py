"""Random tables: valid tilings whose OTSL means the same table, drawn so that nothing is lost, and repeatable."""

from __future__ import annotations

import itertools
import pickle
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mineru_diffusion.document.otsl import parse_otsl
from mineru_diffusion.document.tables import Cell, table_to_html
from mineru_diffusion.errors import UsageError
from mineru_diffusion.synthesis.cells import CellSampler
from mineru_diffusion.synthesis.charset import CHARSET, normalise
from mineru_diffusion.synthesis.table_stream import TableStream
from mineru_diffusion.synthesis.table_typst import RULES, TableStyle, render_table, table_source
from mineru_diffusion.synthesis.tables import TableSpec
from mineru_diffusion.synthesis.typst_engine import EMBEDDED_TEXT, TypstFamily, draw, quote
from mineru_diffusion.synthesis.typst_fonts import EMBEDDED_MONO
from mineru_diffusion.synthesis.words import has_held_out, letter_runs

pytest.importorskip("typst")
pytest.importorskip("wordfreq")

FAMILIES = (TypstFamily(EMBEDDED_TEXT), EMBEDDED_MONO)
SEEDS = st.integers(0, 2**32 - 1)


def spec_of(rows: list[list[str]], header_rows: int = 1) -> TableSpec:
    cells = tuple(Cell(r, c, text=text) for r, row in enumerate(rows) for c, text in enumerate(row))
    n_cols = len(rows[0])
    return TableSpec(len(rows), n_cols, cells, header_rows, ("left",) * n_cols, (False,) * n_cols)


@settings(max_examples=60)
@given(
    SEEDS, st.integers(2, 20), st.integers(2, 12), st.sampled_from([0.0, 1.0]), st.sampled_from(["train", "heldout"])
)
def test_every_table_is_a_tiling_and_survives_otsl(seed: int, rows: int, cols: int, wild: float, split: str) -> None:
    rng = np.random.default_rng(seed)
    spec = TableSpec.random(rng, max_rows=rows, max_cols=cols, sampler=CellSampler(split=split), wild=wild)
    assert 2 <= spec.n_rows <= rows
    assert 2 <= spec.n_cols <= cols
    owners = np.zeros((spec.n_rows, spec.n_cols), dtype=int)
    for cell in spec.cells:
        owners[cell.row : cell.row + cell.row_span, cell.col : cell.col + cell.col_span] += 1
        assert cell.text == normalise(cell.text) == " ".join(cell.text.split())
        assert set(cell.text) <= set(CHARSET)
    assert (owners == 1).all()
    read = parse_otsl(spec.to_otsl())
    assert read is not None
    assert read.cells == spec.cells
    assert not read.warnings
    assert spec.to_html() == table_to_html(spec.table)
    # No span reaches from the header into the body.
    assert (
        all(cell.row + cell.row_span <= spec.header_rows for cell in spec.cells if cell.row < spec.header_rows) or wild
    )


def test_variety() -> None:
    specs = [TableSpec.random(np.random.default_rng(i), max_rows=20, max_cols=12) for i in range(150)]
    assert {spec.header_rows for spec in specs} == {0, 1, 2, 3}
    assert {spec.needs for spec in specs} == {"any", "rows", "grid"}
    assert any(not cell.text for spec in specs for cell in spec.cells)
    assert any("%" in cell.text for spec in specs for cell in spec.cells)
    assert any(any(spec.wrapped) for spec in specs)
    assert any(cell.row_span > 1 and cell.row >= spec.header_rows for spec in specs for cell in spec.cells)
    assert any(1 < cell.col_span < spec.n_cols for spec in specs for cell in spec.cells)


def test_a_bad_tiling_is_refused() -> None:
    with pytest.raises(UsageError, match="do not tile"):
        TableSpec(1, 2, (Cell(0, 0),), 0, ("left",) * 2, (False,) * 2)
    with pytest.raises(UsageError, match="do not tile"):
        TableSpec(1, 2, (Cell(0, 0, col_span=2), Cell(0, 1)), 0, ("left",) * 2, (False,) * 2)
    with pytest.raises(UsageError, match="row of the table has no cell"):
        TableSpec(2, 2, (Cell(0, 0, row_span=2), Cell(0, 1, row_span=2)), 0, ("left",) * 2, (False,) * 2)
    with pytest.raises(UsageError, match="aligns"):
        TableSpec(1, 1, (Cell(0, 0),), 0, (), (False,))


def test_typst_reads_every_character_as_text() -> None:
    # Whatever is in a cell, the picture is that of the same characters set outside of a table.
    nasty = "#let x = \"$1_2*\" \\ @a <b> [c] {d} ~ // `e` --- 'f' = / + - .. #"
    spec = spec_of([["a", "b"], [nasty, ""]])
    page = "#set page(width: auto, height: auto, margin: 2pt)\n"
    plain = draw(f"{page}#text(font: {quote(EMBEDDED_TEXT)}, {quote(nasty)})", 100)
    style = TableStyle(rules="none", font=EMBEDDED_TEXT, size=11, align_header="left")
    table = render_table(spec, style, ppi=100)
    # The text's bottom line of the table holds as much ink as the text alone.
    lower = table[table.shape[0] // 2 :]
    assert (255 - lower.astype(int)).sum() == pytest.approx((255 - plain.astype(int)).sum(), rel=0.02)


@pytest.mark.parametrize("rules", RULES)
def test_rules(rules: str) -> None:
    spec = spec_of([["ab", "cd", "ef"], ["12", "34", "56"], ["7", "8", "9"]])
    picture = render_table(spec, TableStyle(rules=rules, font=EMBEDDED_TEXT, size=10), ppi=144)
    dark = picture < 128
    horizontal = int(np.diff((dark.mean(axis=1) > 0.9).astype(int), prepend=0).clip(0).sum())
    vertical = int(np.diff((dark.mean(axis=0) > 0.9).astype(int), prepend=0).clip(0).sum())
    expected = {
        "grid": (4, 4), "rows": (4, 0), "columns": (1, 4), "booktabs": (3, 0), "header": (1, 0), "frame": (3, 2),
        "none": (0, 0),
    }  # fmt: skip
    assert (horizontal, vertical) == expected[rules]


def test_rules_that_hide_spans_are_refused() -> None:
    cells = (Cell(0, 0, 2, 1, "a"), Cell(0, 1, text="b"), Cell(1, 1, text="c"))
    spec = TableSpec(2, 2, cells, 0, ("left",) * 2, (False,) * 2)
    assert spec.needs == "rows"
    with pytest.raises(UsageError, match="do not show"):
        table_source(spec, TableStyle(rules="none"))
    assert TableStyle.random(np.random.default_rng(0), spec).rules in ("grid", "rows", "booktabs")


def test_no_word_of_a_wrapped_column_leaves_its_cell() -> None:
    text = "Internationalisation WWWWMMMM 8888888888"
    spec = TableSpec(1, 2, (Cell(0, 0, text=text), Cell(0, 1, text="")), 0, ("left",) * 2, (True, False))
    for seed in range(5):
        style = TableStyle.random(np.random.default_rng(seed), spec, font="DejaVu Sans Mono", size=10)
        style = TableStyle(rules="none", font=style.font, size=10, inset_x=0.5, wrap_em=style.wrap_em)
        picture = render_table(spec, style, ppi=72)
        ink = np.flatnonzero((picture < 200).any(axis=0))
        assert ink[-1] < 2 + 10 * (0.5 + style.wrap_em[0]) + 1


@pytest.mark.parametrize("split", ["train", "heldout"])
def test_stream_is_repeatable_and_keeps_its_split(split: str) -> None:
    stream = TableStream(3, split, families=FAMILIES, max_rows=6, max_cols=5)
    samples = list(itertools.islice(stream, 12))
    again = pickle.loads(pickle.dumps(stream))
    for index in (11, 0, 5):
        np.testing.assert_array_equal(again.sample(index).image, samples[index].image)
        assert again.sample(index).target == samples[index].target
    for text in (re.sub("<[a-z]+>", " ", sample.target) for sample in samples):
        # A table without any word of five letters may be in both.
        assert has_held_out(text) == (split == "heldout") or (split == "heldout" and not letter_runs(text))
    for sample in samples:
        assert sample.task == "table"
        assert sample.image.dtype == np.uint8
        assert max(sample.image.shape[:2]) <= 1200
        assert sample.image.std() > 3
    assert len({sample.target for sample in samples}) == len(samples)


def test_stream_respects_its_limits() -> None:
    stream = TableStream(1, families=FAMILIES, max_rows=20, max_cols=12, max_side=500, degrade=0)
    for sample in itertools.islice(stream, 6):
        assert max(sample.image.shape[:2]) <= 500
        assert sample.source["em"] >= 10


def test_bad_arguments() -> None:
    with pytest.raises(UsageError, match="split"):
        TableStream(0, "test", families=FAMILIES)
    with pytest.raises(UsageError, match="negative"):
        TableStream(-1, families=FAMILIES)
    with pytest.raises(UsageError, match="at least 2 x 2"):
        TableSpec.random(np.random.default_rng(0), max_rows=1)
