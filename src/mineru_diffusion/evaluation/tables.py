"""TEDS, the tree edit distance similarity of tables. In: HTML (or OTSL turned into it). Out: 0 (nothing alike) to 1.

Zhong et al., "Image-based table recognition: data, model, and evaluation", ECCV 2020, arXiv 1911.10683, section 6:

    TEDS(a, b) = 1 - EditDist(a, b) / max(|a|, |b|)

Inserting or deleting a node costs 1. Renaming costs 1 where the tags or the spans differ, else, for cells, the
normalised edit distance of their texts. As in the published implementation, |t| leaves out the root, which no two
tables disagree about. Header cells count as cells and row groups (`thead`, `tbody`, `tfoot`) are looked through, as in
OmniDocBench, because the table language of the model has neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from mineru_diffusion.errors import MissingExtra
from mineru_diffusion.evaluation.metrics import normalised_edit_distance

try:
    from apted import APTED, Config
    from lxml import etree, html
except ImportError as error:
    raise MissingExtra("measuring tables", "train") from error

_CELLS = frozenset({"td", "th"})
_GROUPS = frozenset({"thead", "tbody", "tfoot"})


@dataclass
class _Node:
    """`table`, `tr` or `td`; spans and text only matter for `td`."""

    tag: str
    spans: tuple[int, int] = (1, 1)
    text: str = ""
    children: list[_Node] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Nodes below this one."""
        return sum(1 + child.size for child in self.children)


class _Costs(Config):  # type: ignore[misc]
    """What APTED asks about nodes; its defaults are 1 for an insertion or deletion."""

    def __init__(self, structure_only: bool) -> None:
        self._structure_only = structure_only

    def children(self, node: _Node) -> list[_Node]:
        return node.children

    def rename(self, node1: _Node, node2: _Node) -> float:
        if node1.tag != node2.tag or node1.spans != node2.spans:
            return 1.0
        if self._structure_only or node1.tag != "td":
            return 0.0
        return normalised_edit_distance(node1.text, node2.text)


def teds(prediction: str, truth: str, *, structure_only: bool = False) -> float:
    """Similarity of the first table of each HTML string.

    Args:
        prediction: HTML, which may be malformed; without a table the result is 0.
        truth: HTML with a table.
        structure_only: texts of cells do not matter (TEDS-structure, also called TEDS-S or TEDS-Struct).

    Raises:
        ValueError: the truth holds no table.
    """
    wanted = _tree(truth)
    if wanted is None:
        raise ValueError("the truth holds no table")
    found = _tree(prediction)
    if found is None:
        return 0.0
    most = max(found.size, wanted.size)
    if not most:
        return 1.0
    distance = float(APTED(found, wanted, _Costs(structure_only)).compute_edit_distance())
    return max(0.0, 1.0 - distance / most)


def mean_teds(predictions: Sequence[str], truths: Sequence[str], *, structure_only: bool = False) -> float:
    """Mean of `teds` over pairs.

    Raises:
        ValueError: the lengths differ, there is no pair, or a truth holds no table.
    """
    scores = [teds(p, t, structure_only=structure_only) for p, t in zip(predictions, truths, strict=True)]
    if not scores:
        raise ValueError("there is no table to compare")
    return sum(scores) / len(scores)


def _tree(source: str) -> _Node | None:
    """The first table of an HTML string, or None."""
    try:
        # Bytes with a declared encoding: XML declarations and control characters in a str are refused.
        root = html.document_fromstring(source.encode("utf-8", "replace"), html.HTMLParser(encoding="utf-8"))
    except (etree.ParserError, ValueError):
        return None
    table = next(root.iter("table"), None)
    return None if table is None else _Node("table", children=_rows(table))


def _rows(element: Any) -> list[_Node]:
    rows: list[_Node] = []
    for child in element:
        if child.tag in _GROUPS:
            rows += _rows(child)
        elif child.tag == "tr":
            rows.append(_Node("tr", children=[_cell(cell) for cell in child if cell.tag in _CELLS]))
    return rows


def _cell(element: Any) -> _Node:
    spans = (_span(element.get("rowspan")), _span(element.get("colspan")))
    return _Node("td", spans, " ".join("".join(element.itertext()).split()))


def _span(value: str | None) -> int:
    value = (value or "").strip()
    return max(1, int(value)) if value.isascii() and value.isdigit() else 1
