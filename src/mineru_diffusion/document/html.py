"""A document as one HTML page that needs nothing else: pictures inside, no script, every text escaped."""

from __future__ import annotations

import base64
import mimetypes
from collections.abc import Callable
from html import escape
from pathlib import Path

from mineru_diffusion.document.captions import Attached, attach_captions
from mineru_diffusion.document.formulas import clean_formula
from mineru_diffusion.document.html_tables import parse_html_table
from mineru_diffusion.document.markdown_text import list_items
from mineru_diffusion.document.tables import table_to_html
from mineru_diffusion.document.types import FURNITURE, Document, Page, Region

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
.formula { font-family: ui-monospace, monospace; text-align: center; white-space: pre-wrap; margin: 1rem 0; }
.furniture { color: #777; font-size: .85em; } .error { color: #a00; }
""".strip()


def document_to_html(
    document: Document, *, title: str = "", image_root: Path | None = None, furniture: bool = False
) -> str:
    """The document as a complete HTML page.

    Args:
        document: what to show.
        title: the page's title; by default the source's name.
        image_root: folder that `Region.image_path` is relative to; pictures outside of it, or missing, are left out.
        furniture: show headers, footers, page numbers and side notes as well.
    """
    name = title or Path(document.source).name or "document"
    sections = "\n".join(_section(page, image_root, furniture) for page in document.pages)
    return (
        '<!DOCTYPE html>\n<html>\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
        "style-src 'unsafe-inline'\">\n"
        f"<title>{escape(name)}</title>\n<style>\n{_STYLE}\n</style>\n</head>\n<body>\n<main>\n"
        f"{sections}\n</main>\n</body>\n</html>\n"
    )


def _section(page: Page, image_root: Path | None, furniture: bool) -> str:
    parts = [f'<section id="page-{page.index + 1}">']
    if page.error:
        parts.append(f'<p class="error">Page {page.index + 1} could not be read: {escape(page.error)}</p>')
    attached = attach_captions(page.regions)
    inside = {index for group in attached.values() for index in (*group.captions, *group.footnotes)}
    for index, region in enumerate(page.regions):
        if index in inside or (region.kind in FURNITURE and not furniture):
            continue
        body = _region(region, image_root)
        if group := attached.get(index):
            body = f"<figure>{body}{_caption(group, page)}</figure>"
        if body:
            parts.append(body)
    parts.append("</section>")
    return "\n".join(parts)


def _caption(group: Attached, page: Page) -> str:
    lines = [escape(page.regions[index].content) for index in (*group.captions, *group.footnotes)]
    return f"<figcaption>{'<br>'.join(line for line in lines if line)}</figcaption>"


def _region(region: Region, image_root: Path | None) -> str:
    content = region.content.strip()
    picture = _picture(region, image_root)
    render = _RENDERERS.get(region.kind)
    if region.kind in FURNITURE:
        return f'<p class="furniture">{escape(content)}</p>' if content else ""
    if region.kind in ("image", "chart"):
        return picture + (_table(region) if content else "")
    if not content:
        return picture
    return render(region) if render else f"<p>{escape(content)}</p>"


def _title(region: Region) -> str:
    level = min(max(region.level, 1), 6)
    return f"<h{level}>{escape(region.content.strip())}</h{level}>"


def _table(region: Region) -> str:
    # Parsed and written anew, so that nothing but a table gets through from the model's text.
    table = parse_html_table(region.content)
    return table_to_html(table) if table else f"<p>{escape(region.content.strip())}</p>"


def _list(region: Region) -> str:
    return "<ul>" + "".join(f"<li>{escape(item)}</li>" for item in list_items(region.content)) + "</ul>"


def _code(region: Region) -> str:
    return f"<pre><code>{escape(region.content.strip(chr(10)))}</code></pre>"


def _formula(region: Region) -> str:
    return f'<div class="formula">{escape(clean_formula(region.content))}</div>'


_RENDERERS: dict[str, Callable[[Region], str]] = {
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
