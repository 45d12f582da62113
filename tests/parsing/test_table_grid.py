"""Tables of a reader that reads text only: cells apart, every text once, in its row and column."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from parsing_fakes import LINE_PROFILE, font
from PIL import Image, ImageDraw

from mineru_diffusion.document.otsl import parse_otsl
from mineru_diffusion.document.types import Region
from mineru_diffusion.engine.types import DecodingParams, Result
from mineru_diffusion.parsing.assemble import finish_region
from mineru_diffusion.parsing.crops import plan_page
from mineru_diffusion.parsing.lines import split_lines
from mineru_diffusion.parsing.table_grid import Run, column_cuts, otsl_row

WIDTHS = (0, 240, 360, 480)


def draw_table(rows: list[list[str]], *, ruled: bool) -> Image.Image:
    image = Image.new("RGB", (640, 40 + 36 * len(rows)), "white")
    draw = ImageDraw.Draw(image)
    for i, row in enumerate(rows):
        for x, cell in zip(WIDTHS, row, strict=False):
            draw.text((24 + x, 20 + 36 * i), cell, fill="black", font=font(22))
        if ruled:
            draw.line((16, 14 + 36 * i, 620, 14 + 36 * i), fill="black", width=2)
            draw.line((264, 50, 334, 50), fill="black", width=1)
    return image


ROWS = [["Item", "2024", "2023", "2022"], ["Cost of sales", "178", "141", "138"], ["Total", "3,423", "", "1,892"]]


@pytest.mark.parametrize("ruled", [True, False])
def test_a_table_read_cell_by_cell(ruled: bool) -> None:
    image = draw_table(ROWS, ruled=ruled)
    region = Region("table", (0.0, 0.0, 1.0, 1.0))
    (job,), requests = plan_page(image, [region], LINE_PROFILE, DecodingParams())
    texts = [cell for row in ROWS for cell in row if cell]
    assert len(job.lines) == len(texts)
    for _, slot, _ in requests:
        said = texts[job.piece_line[slot]] if slot == job.piece_line.index(job.piece_line[slot]) else ""
        job.results[slot] = Result(said, (7,), (0.9,), (1,), finish_reason="stop")
    (table,) = finish_region(job)
    assert table.kind == "table"
    cells = [[cell.split("</td>")[0] for cell in row.split("<td>")[1:]] for row in table.content.split("<tr>")[1:]]
    assert cells == ROWS
    assert any("rows and columns" in warning for warning in table.warnings)


def test_one_column_is_no_table() -> None:
    image = draw_table([["alpha"], ["beta"], ["gamma"]], ruled=False)
    (job,), requests = plan_page(image, [Region("table", (0.0, 0.0, 1.0, 1.0))], LINE_PROFILE, DecodingParams())
    for _, slot, _ in requests:
        job.results[slot] = Result(f"word{slot}", (7,), (0.9,), (1,), finish_reason="stop")
    (table,) = finish_region(job)
    assert table.content == "word0\nword1\nword2"


def test_cells_of_a_row_share_its_height() -> None:
    found = split_lines(draw_table(ROWS, ruled=True), cells=True)
    assert len({line.box[1::2] for line in found.lines}) == len(ROWS)


runs = st.lists(st.tuples(st.floats(0, 0.9), st.floats(0.01, 0.3)), min_size=1, max_size=6)


@given(st.lists(runs, min_size=1, max_size=8))
def test_no_text_is_lost_wherever_it_stands(drawn: list[list[tuple[float, float]]]) -> None:
    rows = [
        [Run(f"r{i}c{j}", left, min(1.0, left + width)) for j, (left, width) in enumerate(sorted(row))]
        for i, row in enumerate(drawn)
    ]
    cuts = column_cuts([[(run.left, run.right) for run in row] for row in rows], [len(row) for row in rows])
    table = parse_otsl("".join(otsl_row(row, cuts) for row in rows))
    assert table is not None
    said = " ".join(cell.text for cell in table.cells).split()
    assert sorted(said) == sorted(run.text for row in rows for run in row)
