from __future__ import annotations

import pytest

from mineru_diffusion.document.docling import docling_json, doctags, require_docling
from mineru_diffusion.document.exports import check_formats
from mineru_diffusion.document.types import Document, Page, Region
from mineru_diffusion.errors import MissingExtra


def sample() -> Document:
    html = '<table><tr><th colspan="2">h</th></tr><tr><td>1</td><td>2</td></tr></table>'
    first = (
        Region("header", (0.1, 0.01, 0.9, 0.03), 0, content="Head"),
        Region("title", (0.1, 0.05, 0.9, 0.1), 1, content="Title", level=1),
        Region("title", (0.1, 0.11, 0.9, 0.12), 2, content="Section", level=2),
        Region("table_caption", (0.1, 0.13, 0.9, 0.15), 3, content="Table 1"),
        Region("table", (0.1, 0.16, 0.9, 0.3), 4, content=html),
        Region("image", (0.1, 0.35, 0.9, 0.4), 5, content="seen"),
        Region("equation", (0.1, 0.41, 0.9, 0.45), 6, content="x^2"),
        Region("code", (0.1, 0.46, 0.9, 0.5), 7, content="print(1)"),
        Region("list", (0.1, 0.52, 0.9, 0.6), 8, content="1. a\n   - deep\n2. b"),
        Region("text", (0.1, 0.8, 0.9, 0.95), 9, content="A paragraph that ends with infor-"),
    )
    second = (
        Region("text", (0.1, 0.1, 0.9, 0.2), 0, content="mation"),
        Region("banana", (0, 0, 1, 1), 1, content="odd"),
    )
    return Document("dir/report.pdf", (Page(0, 600, 800, first), Page(1, 600, 800, second), Page(2, 1, 1, error="bad")))


def test_missing_package_is_said_before_any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for call in (require_docling, lambda: check_formats("md,docling"), lambda: docling_json(sample())):
        with pytest.raises(MissingExtra, match=r"mineru-diffusion\[docling\]"):
            call()
    assert check_formats("md,html") == {"md", "html"}


def test_docling_reads_it() -> None:
    types = pytest.importorskip("docling_core.types.doc", reason="the extra docling is not installed")
    read = types.DoclingDocument.model_validate_json(docling_json(sample()))
    assert read.name == "report"
    assert len(read.pages) == 3
    body = [item for item in read.texts if item.parent.cref == "#/body" and item.content_layer.value == "body"]
    assert [(item.label.value, item.text) for item in body] == [
        ("title", "Title"), ("section_header", "Section"), ("formula", "x^2"), ("code", "print(1)"),
        ("text", "A paragraph that ends with information"), ("text", "odd"),
    ]  # fmt: skip
    assert [text.text for text in read.texts if text.content_layer.value == "furniture"] == ["Head"]
    (table,) = read.tables
    assert (table.data.num_rows, table.data.num_cols) == (2, 2)
    assert [caption.resolve(read).text for caption in table.captions] == ["Table 1"]
    assert table.prov[0].bbox.as_tuple() == (60.0, 128.0, 540.0, 240.0)
    paragraph = next(text for text in read.texts if text.text.startswith("A paragraph"))
    assert [prov.page_no for prov in paragraph.prov] == [1, 2]
    markdown = read.export_to_markdown(traverse_pictures=True)
    for text in ("Title", "seen", "deep", "information", "$$x^2$$"):
        assert text in markdown


def test_doctags() -> None:
    pytest.importorskip("docling_core", reason="the extra docling is not installed")
    text = doctags(sample())
    assert text.startswith("<doctag>")
    assert "<title><loc_50><loc_25><loc_450><loc_50>Title</title>" in text
    assert "<ched>h<lcel><nl><fcel>1<fcel>2<nl>" in text
    # What DocTags have no place for follows its host.
    assert text.index("<picture>") < text.index(">seen</text>") < text.index("<formula>")


def test_a_tables_own_caption_and_its_footnotes_are_in_both() -> None:
    types = pytest.importorskip("docling_core.types.doc", reason="the extra docling is not installed")
    regions = (
        Region("table", (0.1, 0.1, 0.9, 0.3), 0, content="<table><caption>In</caption><tr><td>1</td></tr></table>"),
        Region("table_footnote", (0.1, 0.31, 0.9, 0.33), 1, content="a: rounded"),
        Region("text", (0.1, 0.5, 0.9, 0.6), 2, content="After it."),
    )
    document = Document("a.pdf", (Page(0, 600, 800, regions),))
    (table,) = types.DoclingDocument.model_validate_json(docling_json(document)).tables
    assert (len(table.captions), len(table.footnotes)) == (1, 1)
    text = doctags(document)
    assert "In</caption>" in text
    assert text.index("</otsl>") < text.index(">a: rounded</footnote>") < text.index("After it.")


@pytest.mark.parametrize("code", ["print(1)", ""])
def test_the_caption_of_code_is_in_both(code: str) -> None:
    types = pytest.importorskip("docling_core.types.doc", reason="the extra docling is not installed")
    regions = (
        Region("code", (0.1, 0.1, 0.9, 0.3), 0, content=code),
        Region("code_caption", (0.1, 0.31, 0.9, 0.33), 1, content="Listing 1"),
    )
    document = Document("a.pdf", (Page(0, 600, 800, regions),))
    read = types.DoclingDocument.model_validate_json(docling_json(document))
    assert [text.text for text in read.texts if text.text] == [*([code] if code else []), "Listing 1"]
    assert "Listing 1" in doctags(document)
