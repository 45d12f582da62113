"""Where tables are, from what a detector is unsure of and what the page shows. Pixels in, pixels out.

A detector may take a table without rules for a paragraph, and cut off its heading. Columns of white that run through
all rows tell the one, the rule above the heading the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mineru_diffusion.document.types import around
from mineru_diffusion.parsing.bands import row_bands, typical_height
from mineru_diffusion.parsing.boxes import Found, PixelBox, area, common, overlap
from mineru_diffusion.parsing.ink import Mask, inked_columns, spans

RIVALS = frozenset({"text", "ref_text", "list"})
"""What tables are taken for."""
REACH = 0.05
"""Part of the page's height in which a table's outer rule is looked for."""
_SCRAPS = RIVALS | {"equation", "unknown"}
"""What the cut-off heading of a table may have been taken for; a caption is one."""
_OPEN = 0.1
"""Of all rows that a white column may be crossed by: a heading or two."""


def settle_tables(found: Sequence[Found], text: Mask) -> list[Found]:
    """Where a table and running text are found at one place, decide by the writing.

    Args:
        found: detections that may overlap; boxes in pixels of `text`.
        text: ink without rules [H, W].
    """
    out = list(found)
    for table in [item for item in found if item.kind == "table"]:
        for rival in [item for item in out if item.kind in RIVALS and item.score > table.score]:
            both = around((table.box, rival.box))
            # The rival must be about as high: a paragraph that happens to hold a table is something else.
            alike = _shared_height(table.box, rival.box) > 0.6
            if overlap(table.box, rival.box) > 0.5 and alike and looks_like_table(_part(text, both)):
                out[out.index(rival)] = replace(rival, kind="table", box=both)
    return out


def extend_to_rules(found: Sequence[Found], ink: Mask) -> list[Found]:
    """Tables with a heading that was cut off: up to the rule above it, if nothing else stands between.

    Args:
        found: regions that do not overlap; boxes in pixels of `ink`.
        ink: with rules [H, W].
    """
    out = list(found)
    for table in [item for item in found if item.kind == "table"]:
        others = [other for other in out if other is not table]
        top = _rule_above(table.box, ink, round(REACH * ink.shape[0]))
        if top is not None:
            grown = (table.box[0], float(top), table.box[2], table.box[3])
            inside = [o for o in others if o.kind in _SCRAPS and _share_inside(o.box, grown) > 0.8]
            if all(o in inside or overlap(grown, o.box) < 0.02 for o in others):
                out = [item for item in out if item not in inside]
                out[out.index(table)] = replace(table, box=grown)
    return out


def looks_like_table(mask: Mask) -> bool:
    """Three or more rows, parted by at least two columns of white that hardly any row crosses."""
    bands = row_bands(mask)
    if len(bands) < 3:
        return False
    size = typical_height(bands)
    rows = np.stack([inked_columns(mask[band.top : band.bottom]) for band in bands])
    crossed = np.count_nonzero(rows, axis=0)
    inked = np.flatnonzero(crossed)
    white = crossed <= max(1 if len(bands) > 3 else 0, _OPEN * len(bands))
    inner = [(a, b) for a, b in spans(white) if a > inked[0] and b <= inked[-1] and b - a >= 1.2 * size]
    return len(inner) >= 2


def _rule_above(box: PixelBox, ink: Mask, reach: int) -> int | None:
    """The row of the highest rule within reach above a box that is as wide as the box, or nearly."""
    left, top, right = int(box[0]), int(box[1]), int(np.ceil(box[2]))
    slack = max(3, round(0.02 * ink.shape[1]))
    first = max(0, top - reach)
    strip = ink[first:top, max(0, left - slack) : right + slack]
    for row in range(strip.shape[0]):
        runs = [(a, b) for a, b in spans(strip[row]) if b - a >= 0.8 * (right - left)]
        # Longer than the table: a rule of the page, not of the table.
        if runs and runs[0][0] > 0 and runs[-1][1] < strip.shape[1]:
            return first + row
    return None


def _share_inside(inner: PixelBox, outer: PixelBox) -> float:
    return area(common(inner, outer)) / max(1.0, area(inner))


def _shared_height(a: PixelBox, b: PixelBox) -> float:
    shared = min(a[3], b[3]) - max(a[1], b[1])
    return shared / max(1.0, max(a[3], b[3]) - min(a[1], b[1]))


def _part(mask: Mask, box: PixelBox) -> Mask:
    part: Mask = mask[int(max(0, box[1])) : int(np.ceil(box[3])), int(max(0, box[0])) : int(np.ceil(box[2]))]
    return part
