"""Layout metrics. In: boxes found and true boxes of pages, each in reading order. Out: F1, order distance, coverage.

Boxes are fractions of the page (or any one unit). The model gives its boxes no score, so matching is not greedy by
confidence as in COCO, but one to one and optimal (Hungarian algorithm): as many pairs above the IoU threshold as
possible and, among those, the largest sum of IoUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mineru_diffusion.document.types import BBox
from mineru_diffusion.errors import MissingExtra

try:
    from rapidfuzz.distance import Levenshtein
    from scipy.optimize import linear_sum_assignment
except ImportError as error:
    raise MissingExtra("measuring layouts", "train") from error


class Box(Protocol):
    """Anything with a kind and a place: regions, boxes of the layout grammar, boxes of synthetic pages."""

    @property
    def kind(self) -> str: ...

    @property
    def bbox(self) -> BBox: ...


@dataclass(frozen=True)
class LayoutScore:
    """Layout quality over pages.

    Attributes:
        f1: at the IoU threshold, over all boxes of all pages; a pair must agree in kind.
        f1_any_kind: the same whatever the kinds.
        order: mean over pages of the reading-order distance, 0 is the true order.
        page_iou: mean over pages of `page_iou`.
    """

    f1: float
    f1_any_kind: float
    order: float
    page_iou: float


def iou_matrix(found: Sequence[BBox], true: Sequence[BBox]) -> NDArray[np.float64]:
    """Intersection over union of every pair of boxes, [len(found), len(true)]; an empty box overlaps nothing."""
    a = np.asarray(found, dtype=np.float64).reshape(-1, 1, 4)
    b = np.asarray(true, dtype=np.float64).reshape(1, -1, 4)
    sides = np.minimum(a[..., 2:], b[..., 2:]) - np.maximum(a[..., :2], b[..., :2])
    shared = np.prod(np.clip(sides, 0, None), axis=-1)
    union = np.prod(a[..., 2:] - a[..., :2], axis=-1) + np.prod(b[..., 2:] - b[..., :2], axis=-1) - shared
    return np.asarray(np.divide(shared, union, out=np.zeros_like(shared), where=union > 0))


def match_boxes(
    found: Sequence[Box], true: Sequence[Box], *, iou: float = 0.5, same_kind: bool = True
) -> list[tuple[int, int]]:
    """Pairs (index in `found`, index in `true`) with at least this IoU, sorted by the first; each box at most once."""
    if not found or not true:
        return []
    overlaps = iou_matrix([box.bbox for box in found], [box.bbox for box in true])
    allowed = overlaps >= iou
    if same_kind:
        allowed &= np.array([[f.kind == t.kind for t in true] for f in found])
    # One more pair is worth more than any gain in overlap: IoUs of n pairs sum up to n at most.
    weight = np.where(allowed, overlaps + min(len(found), len(true)), 0.0)
    rows, columns = linear_sum_assignment(weight, maximize=True)
    return [(int(r), int(c)) for r, c in zip(rows, columns, strict=True) if allowed[r, c]]


def reading_order_distance(pairs: Sequence[tuple[int, int]]) -> float:
    """How far the order of matched boxes is from the truth: the edit distance between the true indices in the order of
    the found ones and the same indices sorted, over their number (OmniDocBench, arXiv 2412.07626). 0 without a pair.
    """
    order = [true for _, true in sorted(pairs)]
    return float(Levenshtein.normalized_distance(order, sorted(order)))


def page_iou(found: Sequence[BBox], true: Sequence[BBox]) -> float:
    """How alike two sets of boxes cover a page, with no matching of boxes: sum over the page of the smaller number of
    boxes that cover a point, over the sum of the larger one. 1 where both are empty.

    After the idea of PageIoU, by which MinerU2.5 (arXiv 2509.22186) and MinerU-Diffusion's curriculum compare layouts:
    coverage, not pairs. Computed on the cells between all edges, which is exact for any number of pixels.
    """
    boxes = np.asarray([*found, *true], dtype=np.float64).reshape(-1, 4)
    xs, ys = np.unique(boxes[:, 0::2]), np.unique(boxes[:, 1::2])
    if len(xs) < 2 or len(ys) < 2:
        return 1.0
    area = np.outer(np.diff(ys), np.diff(xs))
    a, b = _coverage(found, xs, ys), _coverage(true, xs, ys)
    most = float((np.maximum(a, b) * area).sum())
    return float((np.minimum(a, b) * area).sum()) / most if most else 1.0


def _coverage(boxes: Sequence[BBox], xs: NDArray[np.float64], ys: NDArray[np.float64]) -> NDArray[np.int64]:
    """Boxes over each cell, [len(ys) - 1, len(xs) - 1]."""
    count = np.zeros((len(ys) - 1, len(xs) - 1), dtype=np.int64)
    for x0, y0, x1, y1 in boxes:
        left, right = np.searchsorted(xs, (x0, x1))
        top, bottom = np.searchsorted(ys, (y0, y1))
        count[top:bottom, left:right] += 1
    return count


def layout_score(pages: Sequence[tuple[Sequence[Box], Sequence[Box]]], *, iou: float = 0.5) -> LayoutScore:
    """All layout metrics over pages of (found, true) boxes. The order is measured on boxes matched whatever their kind.

    Raises:
        ValueError: there is no page.
    """
    if not pages:
        raise ValueError("there is no page to compare")
    boxes = sum(len(found) + len(true) for found, true in pages)
    same = [match_boxes(found, true, iou=iou) for found, true in pages]
    anyhow = [match_boxes(found, true, iou=iou, same_kind=False) for found, true in pages]
    return LayoutScore(
        f1=2 * sum(map(len, same)) / boxes if boxes else 1.0,
        f1_any_kind=2 * sum(map(len, anyhow)) / boxes if boxes else 1.0,
        order=sum(map(reading_order_distance, anyhow)) / len(pages),
        page_iou=sum(page_iou([b.bbox for b in found], [b.bbox for b in true]) for found, true in pages) / len(pages),
    )
