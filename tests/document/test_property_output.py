"""Whatever a model answers: no exception, and no word of it is lost on the way to any format.

A few examples of each kind in the ordinary run, ten thousand in the slow one.
"""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mineru_diffusion.document.content_list import content_list
from mineru_diffusion.document.docling import docling_json, doctags
from mineru_diffusion.document.document_json import document_from_dict, document_to_json
from mineru_diffusion.document.export_options import ExportOptions
from mineru_diffusion.document.formulas import clean_formula
from mineru_diffusion.document.html import document_to_html
from mineru_diffusion.document.html_tables import parse_html_table
from mineru_diffusion.document.layout_grammar import parse_layout, unparsed_layout
from mineru_diffusion.document.markdown import document_to_markdown
from mineru_diffusion.document.nesting import resolve_nesting
from mineru_diffusion.document.otsl import otsl_to_html, parse_otsl, table_to_otsl
from mineru_diffusion.document.reading_order import order_regions
from mineru_diffusion.document.tables import table_to_html
from mineru_diffusion.document.text_layer import placed_lines
from mineru_diffusion.document.types import KINDS, Document, Page, Region

EXAMPLES = [pytest.param(50, id="few"), pytest.param(10_000, id="many", marks=pytest.mark.slow)]


def hold(examples: int, strategy: st.SearchStrategy[Any], check: Callable[[Any], None]) -> None:
    """Check a property on that many examples."""
    settings(max_examples=examples, deadline=None)(given(strategy)(check))()


# Words that no syntax can swallow, each recognisable in any output.
words = st.sampled_from([f"w{i:02d}z" for i in range(40)])
otsl_tokens = st.sampled_from(["<fcel>", "<ecel>", "<lcel>", "<ucel>", "<xcel>", "<nl>", "<ched>", "<rhed>", "<srow>"])
noise = st.sampled_from(
    [" ", "\n", "<", ">", "&amp;", "<b>", "|", "$", "\\", "<fce", "cel>", "<nl", "</table>", "{", "_"]
)
otsl = st.lists(otsl_tokens | words | noise, max_size=40).map("".join)


def words_in(text: str) -> list[str]:
    return sorted(text[i : i + 4] for i in range(len(text) - 3) if text[i] == "w" and text[i + 3] == "z")


@pytest.mark.parametrize("examples", EXAMPLES)
def test_otsl(examples: int) -> None:
    def check(text: str) -> None:
        table = parse_otsl(text)
        assert words_in(otsl_to_html(text)) == words_in(text)
        if table is None:
            return
        positions = [
            (r, c)
            for cell in table.cells
            for r in range(cell.row, cell.row + cell.row_span)
            for c in range(cell.col, cell.col + cell.col_span)
        ]
        assert sorted(positions) == [(r, c) for r in range(table.n_rows) for c in range(table.n_cols)]
        back = parse_html_table(table_to_html(table))
        assert back is not None
        assert [(c.row, c.col, c.row_span, c.col_span) for c in back.cells] == [
            (c.row, c.col, c.row_span, c.col_span) for c in table.cells
        ]
        assert words_in(table_to_otsl(table)) == words_in(text)

    hold(examples, otsl, check)


layout_tokens = st.sampled_from(
    [
        "<|box_start|>",
        "<|box_end|>",
        "<|ref_start|>",
        "<|ref_end|>",
        "<|rotate_up|>",
        "<|rotate_left|>",
        "<|txt_contd_tgt|>",
        "<|im_end|>",
    ]
)
numbers = st.integers(-50, 1100).map(lambda n: f"{n} ")
boxes = st.builds(
    "<|box_start|>{} {} {} {}<|box_end|><|ref_start|>{}<|ref_end|><|rotate_up|>".format,
    *[st.integers(0, 1000)] * 4,
    st.sampled_from(KINDS) | words,
)
layout_pieces = layout_tokens | words | numbers | boxes | st.sampled_from(["\n", "<", "|", ","])
layout = st.lists(layout_pieces, max_size=30).map("".join)


@pytest.mark.parametrize("examples", EXAMPLES)
def test_layout(examples: int) -> None:
    def check(text: str) -> None:
        found = parse_layout(text)
        kinds = "".join(f" {box.kind} " for box in found)
        assert words_in(kinds + " ".join(unparsed_layout(text))) == words_in(text)
        for box in found:
            assert 0 <= box.bbox[0] < box.bbox[2] <= 1
            assert 0 <= box.bbox[1] < box.bbox[3] <= 1
        kept = resolve_nesting(found)
        ordered = order_regions([Region(box.kind, box.bbox, angle=box.angle) for box in kept])
        assert [region.order for region in ordered] == list(range(len(kept)))

    hold(examples, layout, check)


LATEX = r"{ } { } \left( \right) \left \right. _ ^ & \\ $ \[ \] \( \) \frac \sqrt \text{ \begin{array}{c} \end{array}"
latex_pieces = st.sampled_from([*LATEX.split(), "\\begin{cases}", "\\end{cases}", " ", "\\", "%"])
# A word right behind a command would become a part of its name.
latex = st.lists(words.map(" {}".format) | latex_pieces, max_size=30).map("".join)


@pytest.mark.parametrize("examples", EXAMPLES)
def test_latex(examples: int) -> None:
    def check(text: str) -> None:
        clean = clean_formula(text)
        assert words_in(clean) == words_in(text)
        tokens = re.findall(r"\\begin\{array\}|\\end\{array\}|\\.|[{}]", clean, re.DOTALL)
        assert tokens.count("{") == tokens.count("}")
        assert tokens.count("\\begin{array}") == tokens.count("\\end{array}")

    hold(examples, latex, check)


fractions = st.integers(0, 20).map(lambda v: v / 20)
text_pieces = st.sampled_from(["\n", "\n\n", "- ", "1. ", " ", "# ", "$", "*", "`", "-\n"])
contents = otsl.map(otsl_to_html) | latex | st.lists(words | text_pieces, max_size=12).map("".join)
regions = st.builds(
    lambda kind, bbox, content, angle: Region(kind, bbox, content=content, angle=angle, image_path="images/a.png"),
    st.sampled_from(KINDS),
    st.tuples(*[fractions] * 4),
    contents,
    st.sampled_from((0, 0, 0, 90, 270)),
)
documents = st.lists(st.lists(regions, max_size=4), max_size=3).map(
    lambda pages: Document(
        "x.pdf",
        tuple(
            Page(i, 600, 800, tuple(Region(**{**vars(r), "order": n}) for n, r in enumerate(page)))
            for i, page in enumerate(pages)
        ),
    )
)


@pytest.mark.parametrize("examples", EXAMPLES)
def test_every_format_has_every_word(examples: int) -> None:
    # Joined tables leave out a head that is printed again, which is a loss of words on purpose.
    options = ExportOptions(furniture=True, join_tables=False)

    def check(document: Document) -> None:
        said = words_in(" ".join(region.content for page in document.pages for region in page.regions))
        assert words_in(document_to_markdown(document, options)) == said
        listed = json.dumps(content_list(document, options), ensure_ascii=False)
        assert words_in(listed) == said
        assert document_from_dict(json.loads(document_to_json(document, options))) == document
        html = document_to_html(document, options)
        body = html.split("<main>")[1]
        assert set(said) == set(words_in(body))
        if importlib.util.find_spec("docling_core") is not None:
            plain = json.dumps(json.loads(docling_json(document, options)), ensure_ascii=False)
            assert set(words_in(plain)) >= set(said)
            assert words_in(doctags(document, options)) == said
        placed = " ".join(line.text for page in document.pages for line in placed_lines(page))
        assert set(words_in(placed.replace(" ", ""))) >= set(said)

    hold(examples, documents, check)
