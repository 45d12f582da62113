"""What a person should look at: regions that were read with little confidence, or not as they should have been."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mineru_diffusion.document.types import BBox, Document, Region


@dataclass(frozen=True)
class ReviewItem:
    """One region to look at.

    Attributes:
        page: index of the page, from 0.
        order: the region's `order` on it.
        kind, bbox, confidence: the region's.
        reasons: why, in words; at least one.
    """

    page: int
    order: int
    kind: str
    bbox: BBox
    confidence: float | None
    reasons: tuple[str, ...]


def reasons_to_review(region: Region, below: float) -> tuple[str, ...]:
    """Why a region should be looked at; empty if it need not be.

    Args:
        region: as it was read.
        below: confidences smaller than this are a reason.
    """
    reasons = list(region.warnings)
    if region.confidence is not None and region.confidence < below:
        # Rounded down, so that a confidence just below the limit does not read as the limit.
        reasons.insert(0, f"confidence {int(region.confidence * 1000) / 1000:.3f}")
    if region.finish_reason not in ("", "stop") and not region.warnings:
        reasons.append(f"reading ended by {region.finish_reason}")
    return tuple(reasons)


def review_list(document: Document, below: float) -> list[ReviewItem]:
    """The regions of a document to look at, the least certain first."""
    items = list(_items(document, below))
    return sorted(items, key=lambda item: (1.0 if item.confidence is None else item.confidence, item.page, item.order))


def _items(document: Document, below: float) -> Iterator[ReviewItem]:
    for page in document.pages:
        for region in page.regions:
            if reasons := reasons_to_review(region, below):
                yield ReviewItem(page.index, region.order, region.kind, region.bbox, region.confidence, reasons)
