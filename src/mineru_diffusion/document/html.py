"""A document as one HTML page that needs nothing else: pictures inside, no script, every text escaped."""

from __future__ import annotations

import base64
import mimetypes
from collections.abc import Callable, Iterable
from html import escape
from pathlib import Path

from mineru_diffusion.document.export_options import ExportOptions
from mineru_diffusion.document.flow import PAGE_ERROR, Block, Part, flow
from mineru_diffusion.document.html_tables import parse_html_table
from mineru_diffusion.document.inline_math import split_math
from mineru_diffusion.document.list_text import ListItem, read_list
from mineru_diffusion.document.mathml import formula_to_html
from mineru_diffusion.document.review import reasons_to_review
from mineru_diffusion.document.tables import table_to_html
from mineru_diffusion.document.types import FURNITURE, Document, Region

# From these confidences on, a block counts as certain, or at least as likely right.
_HIGH, _MEDIUM = 0.9, 0.7

_STYLE = """
body { font: 17px/1.55 Georgia, "Noto Serif", "Noto Serif CJK SC", serif; }
body { color: #1b1b1b; background: #f4f2ee; margin: 0; }
main { max-width: 46rem; margin: 0 auto; padding: 2rem 1rem; }
section { background: #fff; padding: 2rem 2.5rem; margin: 0 0 1.5rem; box-shadow: 0 1px 4px #0002; }
section { overflow-wrap: break-word; }
h1, h2, h3, h4, h5, h6 { font-family: system-ui, sans-serif; line-height: 1.25; }
p { white-space: pre-line; }
table { border-collapse: collapse; margin: 1rem 0; font-size: .9em; display: block; overflow-x: auto; }
td, th { border: 1px solid #bbb; padding: .25rem .5rem; vertical-align: top; }
pre { background: #f6f6f6; padding: .75rem 1rem; overflow-x: auto; font-size: .85em; }
figure { margin: 1.25rem 0; } figcaption { color: #555; font-size: .9em; } img { max-width: 100%; }
.formula { text-align: center; margin: 1rem 0; overflow-x: auto; } .formula .latex { white-space: pre-wrap; }
.block { border-radius: 3px; scroll-margin-top: 2rem; }
.block[data-confidence]:hover { outline: 6px solid var(--tint); background: var(--tint); }
.high { --tint: #e3f5e6; } .medium { --tint: #fdf1cf; } .low { --tint: #fbdcd8; }
.review { border-left: 3px solid #d0453a; padding-left: .6rem; margin-left: -.8rem; }
ul.numbered { list-style: none; padding-left: 1.2rem; }
.furniture { color: #777; font-size: .85em; } .error { color: #a00; }
""".strip()


def document_to_html(
    document: Document, options: ExportOptions | None = None, *, title: str = "", image_root: Path | None = None
) -> str:
    """The document as a complete HTML page. Formulas are MathML; confidences show when the pointer is on a block.

    Args:
        document: what to show.
        options: page furniture, joined tables, and what to mark for review.
        title: the page's title; by default the source's name.
        image_root: folder that `Region.image_path` is relative to; pictures outside of it, or missing, are left out.
    """
    options = options or ExportOptions()
    name = title or Path(document.source).name or "document"
    blocks: dict[int, list[Block]] = {page.index: [] for page in document.pages}
    for block in flow(document, furniture=options.furniture, join_tables=options.join_tables):
        blocks[block.page].append(block)
    sections = "\n".join(_section(page, group, image_root, options) for page, group in blocks.items())
    return (
        '<!DOCTYPE html>\n<html>\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
        "style-src 'unsafe-inline'\">\n"
        f"<title>{escape(name)}</title>\n<style>\n{_STYLE}\n</style>\n</head>\n<body>\n<main>\n"
        f"{sections}\n</main>\n</body>\n</html>\n"
    )


def _section(page: int, blocks: Iterable[Block], image_root: Path | None, options: ExportOptions) -> str:
    parts = [f'<section id="page-{page + 1}">']
    for block in blocks:
        if block.kind == PAGE_ERROR:
            parts.append(f'<p class="error">Page {page + 1} could not be read: {escape(block.content)}</p>')
        elif body := _body(block, image_root):
            parts.append(f"<div{_attributes(block, options)}>{body}</div>")
    parts.append("</section>")
    return "\n".join(parts)


def _attributes(block: Block, options: ExportOptions) -> str:
    """Class, confidence and tooltip of a block: it is as certain as its least certain part."""
    regions = [part.region for part in (*block.parts, *block.captions, *block.footnotes)]
    known = [region.confidence for region in regions if region.confidence is not None]
    classes, data, notes = ["block"], "", []
    if known:
        least = min(known)
        classes.append("high" if least >= _HIGH else "medium" if least >= _MEDIUM else "low")
        data = f' data-confidence="{least:.3f}"'
        notes.append(f"confidence {least:.2f}")
    for region in regions:
        notes += [warning for warning in region.warnings if warning not in notes]
    if options.review is not None and any(reasons_to_review(region, options.review) for region in regions):
        classes.append("review")
    tooltip = f' title="{escape("; ".join(notes))}"' if notes else ""
    return f' class="{" ".join(classes)}"{data}{tooltip}'


def _body(block: Block, image_root: Path | None) -> str:
    body = _region(block.region, block.content.strip(), image_root)
    above, below = _captions(block.captions_above()), _captions(block.captions_below())
    notes = "".join(f"<p>{_text(part.region.content)}</p>" for part in block.footnotes)
    if not (above or below or notes):
        return body
    # A figure may hold one caption only; with two, the second is a paragraph.
    first = f"<figcaption>{above}</figcaption>" if above else ""
    last = f"<p>{below}</p>" if below and above else f"<figcaption>{below}</figcaption>" if below else ""
    return f"<figure>{first}{body}{last}{notes}</figure>"


def _captions(parts: Iterable[Part]) -> str:
    return "<br>".join(text for part in parts if (text := _text(part.region.content)))


def _region(region: Region, content: str, image_root: Path | None) -> str:
    if region.kind in FURNITURE:
        return f'<p class="furniture">{_text(content)}</p>' if content else ""
    if region.kind in ("image", "chart"):
        return _picture(region, image_root) + (_table(region, content) if content else "")
    if not content:
        return _picture(region, image_root)
    render = _RENDERERS.get(region.kind)
    return render(region, content) if render else _paragraphs(content)


def _text(content: str) -> str:
    """Running text as HTML, formulas in it as MathML."""
    return "".join(
        formula_to_html(piece, display=False) if is_math else escape(piece)
        for is_math, piece in split_math(content.strip())
    )


def _paragraphs(content: str) -> str:
    return "".join(f"<p>{_text(part)}</p>" for part in content.split("\n\n") if part.strip())


def _title(region: Region, content: str) -> str:
    level = min(max(region.level, 1), 6)
    return f"<h{level}>{_text(content)}</h{level}>"


def _table(region: Region, content: str) -> str:
    # Parsed and written anew, so that nothing but a table gets through from the model's text.
    table = parse_html_table(content)
    return table_to_html(table, _cell) if table else f"<p>{escape(content)}</p>"


def _cell(text: str) -> str:
    return "<br>".join(_text(line) for line in text.split("\n"))


def _list(region: Region, content: str) -> str:
    return _nested(read_list(content), 0)


def _nested(items: list[ListItem], depth: int) -> str:
    """Items from `depth` on as a list; deeper ones go into the item above them."""
    tag = "ol" if items and all(item.number.endswith(".") for item in items if item.depth == depth) else "ul"
    out: list[str] = []
    index = 0
    while index < len(items):
        item = items[index]
        end = index + 1
        while end < len(items) and items[end].depth > depth:
            end += 1
        inner = _nested(items[index + 1 : end], depth + 1) if end > index + 1 else ""
        value = f' value="{item.number.rstrip(".")}"' if tag == "ol" else ""
        text = item.text if tag == "ol" or not item.number else f"{item.number} {item.text}"
        out.append(f"<li{value}>{_text(text)}{inner}</li>")
        index = end
    numbered = ' class="numbered"' if tag == "ul" and any(item.number for item in items) else ""
    return f"<{tag}{numbered}>{''.join(out)}</{tag}>"


def _code(region: Region, content: str) -> str:
    return f"<pre><code>{escape(region.content.strip(chr(10)))}</code></pre>"


def _formula(region: Region, content: str) -> str:
    return f'<div class="formula">{formula_to_html(content, display=True)}</div>'


_RENDERERS: dict[str, Callable[[Region, str], str]] = {
    "title": _title,
    "table": _table,
    "list": _list,
    "code": _code,
    "algorithm": _code,
    "equation": _formula,
}


def _picture(region: Region, image_root: Path | None) -> str:
    if not region.image_path or image_root is None or region.kind in ("table", "equation"):
        return ""
    root = image_root.resolve()
    path = (root / region.image_path).resolve()
    if root not in path.parents or not path.is_file():
        return ""
    mime = mimetypes.guess_type(path.name)[0] or "image/png"
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    return f'<img alt="{escape(region.kind)}" src="data:{mime};base64,{data}">'
