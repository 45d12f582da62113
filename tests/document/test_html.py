from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mineru_diffusion.document.export_options import ExportOptions
from mineru_diffusion.document.html import document_to_html
from mineru_diffusion.document.mathml import formula_to_html
from mineru_diffusion.document.types import Document, Page, Region

BOX = (0.1, 0.1, 0.9, 0.9)


def body(*regions: Region, options: ExportOptions | None = None) -> str:
    return document_to_html(Document("x", (Page(0, 1, 1, regions),)), options).split("<main>")[1]


def test_formulas_are_mathml_with_their_latex() -> None:
    html = formula_to_html(r"\[ \frac{a}{b} < 1 \]", display=True)
    assert html.startswith('<math display="block"><semantics><mrow>')
    assert "<mfrac>" in html
    assert r'<annotation encoding="application/x-tex">\frac{a}{b} &lt; 1</annotation>' in html
    aligned = formula_to_html(r"\begin{aligned} a &= b \\ c &= d \end{aligned}", display=True)
    assert aligned.count("<mtr>") == 2
    assert "<mi>&" not in aligned


@pytest.mark.parametrize("latex", [r"\unknowncommand{x}", "", "%", "^"])
def test_what_cannot_be_set_is_shown_as_latex(latex: str) -> None:
    assert formula_to_html(latex, display=False).startswith('<code class="latex">')


@pytest.mark.parametrize(
    "latex",
    [
        r"\text{<img src=x onerror=alert(1)>}", r"\href{javascript:alert(1)}{x}", r"\style{background:url(x)}{x}",
        r"\mathrm{</math><script>alert(1)</script>}", r"\class{x}{y}", r"\color{red\" onclick=\"x}{y}",
    ],
)  # fmt: skip
def test_formulas_let_no_markup_through(latex: str) -> None:
    for element in ElementTree.fromstring(formula_to_html(latex, display=True)).iter():
        assert re.fullmatch(r"math|semantics|annotation|code|m[a-z]+", element.tag)
        assert not {"href", "style", "src", "onclick", "id"} & set(element.attrib)


pieces = st.sampled_from([*"ab1{}_^\\&$<>\"' \n", "\\frac", "\\left(", "\\text", "\\sqrt", "\\begin{array}{c}"])


@given(st.lists(pieces, max_size=20).map("".join))
def test_any_formula_is_well_formed(latex: str) -> None:
    ElementTree.fromstring(formula_to_html(latex, display=True))


def test_formulas_in_text_cells_and_titles() -> None:
    cell = r"<table><tr><td>is \(x_1\)<br>and 5 &lt; 6</td></tr></table>"
    html = body(
        Region("text", BOX, content=r"so \(x\) and $5 or $6"),
        Region("title", BOX, content="On $a^2$"),
        Region("table", BOX, content=cell),
    )
    assert html.count("<math") == 3
    assert "and $5 or $6" in html
    assert "<br>and 5 &lt; 6</td>" in html


def test_confidence_is_shown_as_a_tint_and_for_review() -> None:
    sure, unsure, bad = (
        Region("text", BOX, content="sure", confidence=0.99),
        Region("text", BOX, content="unsure", confidence=0.8),
        Region("text", BOX, content="bad", confidence=0.2, warnings=('cut "short"',)),
    )
    html = body(sure, unsure, bad, options=ExportOptions(review=0.9))
    assert '<div class="block high" data-confidence="0.990" title="confidence 0.99"><p>sure' in html
    assert '<div class="block medium review" data-confidence="0.800"' in html
    assert 'title="confidence 0.20; cut &quot;short&quot;"' in html
    assert "review" not in body(sure, unsure, bad)


def test_nested_and_numbered_lists() -> None:
    html = body(Region("list", BOX, content="3. three\n  - deep\n4. four"))
    assert '<ol><li value="3">three<ul><li>deep</li></ul></li><li value="4">four</li></ol>' in html
    assert '<ul class="numbered"><li>1) a</li></ul>' in body(Region("list", BOX, content="1) a"))


def test_joined_parts_and_captions() -> None:
    left = Region("text", (0.1, 0.1, 0.48, 0.9), content="The left column ends with infor-", confidence=0.9)
    right = Region("text", (0.52, 0.1, 0.9, 0.9), content="mation", confidence=0.6)
    html = body(left, right)
    assert "<p>The left column ends with information</p>" in html
    assert 'data-confidence="0.600"' in html
    table = Region("table", (0.1, 0.3, 0.9, 0.5), content="<table><tr><td>1</td></tr></table>")
    caption = Region("table_caption", (0.1, 0.27, 0.9, 0.29), content="Table 1")
    note = Region("table_footnote", (0.1, 0.51, 0.9, 0.53), content="Note")
    assert "<figure><figcaption>Table 1</figcaption><table>" in body(caption, table, note)
    assert "</table><p>Note</p></figure>" in body(caption, table, note)


def test_every_page_has_its_place(tmp_path: Path) -> None:
    html = document_to_html(Document("x", (Page(0, 1, 1), Page(1, 1, 1, error="bad"))), image_root=tmp_path)
    assert 'id="page-1"' in html
    assert "Page 2 could not be read: bad" in html
