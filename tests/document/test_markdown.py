from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from mineru_diffusion.document.export_options import ExportOptions
from mineru_diffusion.document.list_text import list_items
from mineru_diffusion.document.markdown import document_to_markdown, region_to_markdown
from mineru_diffusion.document.markdown_text import escape_text, fenced, list_markdown
from mineru_diffusion.document.types import Document, Page, Region
from mineru_diffusion.errors import UsageError

TALL = (0.1, 0.1, 0.9, 0.9)


def region(kind: str, content: str = "", bbox: tuple[float, float, float, float] = TALL, **fields: Any) -> Region:
    return Region(kind, bbox, content=content, **fields)


def markdown(*pages: list[Region], furniture: bool = False) -> str:
    document = Document("x.pdf", tuple(Page(index, 600, 800, tuple(regions)) for index, regions in enumerate(pages)))
    return document_to_markdown(document, ExportOptions(furniture=furniture))


def shown(text: str) -> str:
    """The text that a CommonMark reader shows, with a mark for every structure that is no plain paragraph."""
    out = []
    for token in MarkdownIt("commonmark").enable("table").enable("strikethrough").parse(text):
        if token.type == "inline":
            for child in token.children or []:
                plain = child.type in ("text", "softbreak", "text_special")
                out.append("\n" if child.type == "softbreak" else child.content if plain else f"[{child.type}]")
        elif not token.type.startswith("paragraph"):
            out.append(f"[{token.type}]")
    return "".join(out)


@pytest.mark.parametrize(
    "text",
    [
        "# not a heading", "1. not a list", "2) nor this", "- nor this", "+ x", "* y * z", "> quote", "```", "~~~",
        "---", "===", "a * b * c", "*em* and **strong**", "_em_ text _more_", "snake_case_name", "1.5 is a number",
        "a <b>bold</b> <!-- c -->", "&amp; &copy; AT&T", "[x](y) and [x][y]", "![a](b)", "[ref]: http://x", "100%",
        "back`tick` and `more`", "C:\\dir\\*.txt", "\\# x", "~~gone~~", "a_ _b", "$5 and $6", "#hashtag", "a|b",
        "x < y > z", "<https://x.y>", "***", "- - -", "**", "a\nb", "a\\\nb",
    ],
)  # fmt: skip
def test_text_is_shown_as_it_is(text: str) -> None:
    assert shown(escape_text(text)) == text


@given(st.text(alphabet="ab1 *_`#>-+=~[]()!<&;:.|\\\n", max_size=24))
def test_any_text_is_shown_as_it_is(text: str) -> None:
    escaped = escape_text(text)
    expected = "\n".join(line.strip() for line in text.strip().splitlines())
    if "\\(" in text or "\\[" in text or "\n\n" in expected:
        return  # formulas and paragraph breaks have tests of their own
    assert shown(escaped) == expected


def test_harmless_text_is_not_touched() -> None:
    for text in (
        "A plain sentence, e.g. 5 * 3 = 15 (see [12]).",
        "snake_case and C# at $5",
        "x < y & z",
        "state-of-the-art",
        "a ~ b",
    ):
        assert escape_text(text) == text


def test_inline_formulas_pass() -> None:
    assert escape_text(r"so \(a_1 * b_2 * c\) holds") == "so $a_1 * b_2 * c$ holds"
    assert escape_text(r"so \[ x \] holds") == "so $x$ holds"
    assert escape_text(r"keep $a_i^2$ and *this* one *") == r"keep $a_i^2$ and \*this\* one \*"
    assert escape_text("costs $5 or $6") == r"costs \$5 or \$6"


def test_headings_have_their_level() -> None:
    assert markdown([region("title", "One\ntwo", level=3)]) == "### One two\n"
    assert markdown([region("title", "Top")]) == "# Top\n"
    assert markdown([region("title", "Deep", level=9)]) == "###### Deep\n"


def test_tables() -> None:
    plain = "<table><tr><td>a|b</td><td></td></tr><tr><td>1<br>2</td><td>*x* *</td></tr></table>"
    assert region_to_markdown(region("table", plain)) == "| a\\|b |  |\n| --- | --- |\n| 1<br>2 | \\*x\\* \\* |"
    spans = '<table><tr><td colspan="2">a</td></tr><tr><td>b</td><td>c</td></tr></table>'
    assert region_to_markdown(region("table", spans)) == spans
    assert region_to_markdown(region("table", "no table")) == "no table"
    assert "script" not in region_to_markdown(region("table", spans + "<script>x</script>"))


def test_github_table_is_read_back_as_a_table() -> None:
    html = "<table><tr><td>h`1`</td><td>`h2</td></tr><tr><td></td><td>x|y</td></tr></table>"
    rendered = shown(region_to_markdown(region("table", html)))
    assert rendered.count("[td_open]") == 2
    assert "x|y" in rendered


def test_other_blocks() -> None:
    assert region_to_markdown(region("equation", r"\[ { a \]")) == "$$\n{ a}\n$$"
    assert region_to_markdown(region("code", "  if x:\n    y```")) == "````\n  if x:\n    y```\n````"
    assert region_to_markdown(region("image", image_path="images/a.png")) == "![](images/a.png)"
    assert region_to_markdown(region("image", image_path="images/a b.png")) == "![](<images/a b.png>)"
    assert region_to_markdown(region("chart", "<table><tr><td>1</td></tr></table>")) == "| 1 |\n| --- |"
    assert region_to_markdown(region("text", "  ")) == ""
    assert region_to_markdown(region("banana", "y")) == "y"
    assert fenced("x", "python") == "```python\nx\n```"


def test_lists() -> None:
    assert list_markdown("\u2022 a\nmore\n\u2022 b *x* *") == "- a more\n- b \\*x\\* \\*"
    assert list_markdown("1. a\n2) b") == "1. a\n2) b"
    assert list_items("a\n\nb") == ["a", "b"]


def test_nested_lists() -> None:
    content = "1. one\n  - deep\n    - deeper\n  - back\n10. ten\n    (a) label\nmore"
    expected = "1. one\n   - deep\n     - deeper\n   - back\n10. ten\n    - (a) label more"
    assert list_markdown(content) == expected
    rendered = shown(list_markdown(content))
    assert rendered.count("[ordered_list_open]") == 1
    assert rendered.count("[bullet_list_open]") == 3
    assert list_items(content) == ["1. one", "deep", "deeper", "back", "10. ten", "(a) label more"]


def test_formulas_with_the_delimiters_of_latex() -> None:
    made = [region("text", r"so $a_1$ and \(b\)"), region("equation", "x"), region("title", "On $x^2$")]
    made += [region("table", "<table><tr><td>$a_1$</td></tr></table>"), region("list", r"- \(c\)")]
    document = Document("x", (Page(0, 1, 1, tuple(made)),))
    text = document_to_markdown(document, ExportOptions(math="latex"))
    assert text == "so \\(a_1\\) and \\(b\\)\n\n\\[\nx\n\\]\n\n# On \\(x^2\\)\n\n| \\(a_1\\) |\n| --- |\n\n- \\(c\\)\n"
    with pytest.raises(UsageError):
        ExportOptions(math="tex")  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        ExportOptions(review=1.5)


def test_furniture_is_left_out_unless_asked_for() -> None:
    page = [region("header", "H"), region("text", "Body"), region("page_number", "7")]
    assert markdown(page) == "Body\n"
    assert markdown(page, furniture=True) == "H\n\nBody\n\n7\n"


def test_a_lone_line_at_the_bottom_is_kept() -> None:
    assert markdown([region("text", "Hello World", (0.1, 0.95, 0.3, 0.97))]) == "Hello World\n"


def test_paragraph_goes_on_in_the_next_column_and_page() -> None:
    left = region("text", "The first column ends with infor-", (0.1, 0.1, 0.48, 0.9))
    right = region("text", "mation and more of it", (0.52, 0.1, 0.9, 0.9))
    table = region("table", "<table><tr><td>t</td></tr></table>")
    footer = region("footer", "7")
    next_page = region("text", "on the next page.", (0.1, 0.1, 0.48, 0.2))
    joined = "The first column ends with information and more of it on the next page."
    assert markdown([left, right, table, footer], [next_page]) == f"{joined}\n\n| t |\n| --- |\n"


def test_paragraphs_are_not_joined_without_need() -> None:
    above = region("text", "We obtain for all of them", (0.1, 0.1, 0.9, 0.2))
    below = region("text", "where x is small", (0.1, 0.3, 0.9, 0.4))
    assert markdown([above, below]).count("\n\n") == 1
    assert markdown([above, region("equation", "x")], [below]).startswith("We obtain for all of them\n\n$$")
    assert markdown([above, region("title", "T")], [below]).count("\n\n") == 2
    done = region("text", "We obtain for all of them.")
    assert markdown([done], [below]).count("\n\n") == 1


def test_continuation_that_the_layout_found() -> None:
    first, second = region("text", "\u7b2c\u4e00"), region("text", "\u7b2c\u4e8c", source={"continued": "layout"})
    assert markdown([first, second]) == "\u7b2c\u4e00\u7b2c\u4e8c\n"


def test_failed_page_is_visible_in_the_source_only() -> None:
    document = Document("x", (Page(0, 1, 1, error="bad --> page"), Page(1, 1, 1, (region("text", "ok"),))))
    text = document.to_markdown()
    assert text.startswith("<!-- page 1 could not be read: bad - -> page -->\n\nok")
    assert document_to_markdown(Document("x")) == ""
