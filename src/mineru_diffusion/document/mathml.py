"""LaTeX to MathML for HTML, through latex2mathml; whatever it cannot read is shown as LaTeX.

Only known elements and attributes get through, every text escaped: a formula is a model's text like any other.
"""

from __future__ import annotations

import re
from html import escape, unescape
from xml.etree.ElementTree import Element

from mineru_diffusion.document.formulas import clean_formula

_ATTRIBUTES = frozenset(
    [
        "columnalign",
        "columnspacing",
        "columnlines",
        "rowlines",
        "rowspacing",
        "accent",
        "accentunder",
        "depth",
        "displaystyle",
        "fence",
        "form",
        "height",
        "largeop",
        "linebreak",
        "linethickness",
        "lspace",
        "mathvariant",
        "maxsize",
        "minsize",
        "movablelimits",
        "notation",
        "rowalign",
        "rspace",
        "scriptlevel",
        "separator",
        "stretchy",
        "symmetric",
        "voffset",
        "width",
        "mathcolor",
        "mathbackground",
    ]
)
_ELEMENTS = frozenset(
    [
        "math",
        "mrow",
        "mi",
        "mn",
        "mo",
        "mtext",
        "mspace",
        "ms",
        "mfrac",
        "msqrt",
        "mroot",
        "mstyle",
        "mpadded",
        "mphantom",
        "mfenced",
        "menclose",
        "msub",
        "msup",
        "msubsup",
        "munder",
        "mover",
        "munderover",
        "mmultiscripts",
        "mprescripts",
        "none",
        "mtable",
        "mtr",
        "mtd",
        "mlabeledtr",
        "merror",
    ]
)
# Environments that it takes for plain groups; as arrays they keep their columns.
_ALIGNED = re.compile(r"\\(begin|end)\s*\{(?:aligned|alignedat|align|split|eqnarray|gathered|gather|multline)\*?\}")


def formula_to_html(latex: str, *, display: bool) -> str:
    """A formula as a MathML element with its LaTeX as annotation, or as LaTeX in a `code` element."""
    latex = clean_formula(latex)
    root = _convert(latex)
    if root is None:
        return f'<code class="latex">{escape(latex)}</code>'
    body = "".join(_serialise(child) for child in root)
    source = f'<annotation encoding="application/x-tex">{escape(latex)}</annotation>'
    shape = "block" if display else "inline"
    return f'<math display="{shape}"><semantics><mrow>{body}</mrow>{source}</semantics></math>'


def _convert(latex: str) -> Element | None:
    from latex2mathml.converter import convert_to_element

    arrays = _ALIGNED.sub(lambda m: r"\end{array}" if m[1] == "end" else r"\begin{array}{rlrlrlrl}", latex)
    try:
        root: Element = convert_to_element(arrays)
    except Exception:  # it raises whatever its parser runs into
        return None
    # A command it does not know it prints as it stands, and its argument behind it: the LaTeX is easier to read.
    if any("\\" in unescape(text) for text in root.itertext()) or not "".join(root.itertext()).strip():
        return None
    return root


def _serialise(element: Element) -> str:
    inner = escape(unescape(element.text or "")) + "".join(_serialise(child) for child in element)
    if element.tag not in _ELEMENTS:
        return inner
    attributes = "".join(
        f' {name}="{escape(unescape(value))}"' for name, value in element.attrib.items() if name in _ATTRIBUTES
    )
    return f"<{element.tag}{attributes}>{inner}</{element.tag}>"
