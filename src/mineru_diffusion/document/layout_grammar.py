"""The layout language: what the model writes for a page, to boxes and back.

One box is `<|box_start|>x1 y1 x2 y2<|box_end|><|ref_start|>kind<|ref_end|><|rotate_up|>`, coordinates 0..1000 of the
page; text that continues the previous block carries `<|txt_contd_tgt|>` at the end. Boxes are separated by newlines,
but are found wherever they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from mineru_diffusion.document.types import BBox, Region

BOX_START, BOX_END = "<|box_start|>", "<|box_end|>"
REF_START, REF_END = "<|ref_start|>", "<|ref_end|>"
CONTINUED = "<|txt_contd_tgt|>"
ROTATIONS = {"<|rotate_up|>": 0, "<|rotate_right|>": 90, "<|rotate_down|>": 180, "<|rotate_left|>": 270}
GRID = 1000

_ROTATION_TOKENS = {angle: token for token, angle in ROTATIONS.items()}
_PIECE = re.compile(r"<\|box_start\|>(?:(?!<\|box_start\|>).)*", re.DOTALL)
_NUMBER = r"([-+]?\d+(?:\.\d+)?)"
_BOX = re.compile(
    rf"<\|box_start\|>\s*{_NUMBER}[\s,]+{_NUMBER}[\s,]+{_NUMBER}[\s,]+{_NUMBER}[\s,]*(?:<\|box_end\|>|(?=<\|ref_start\|>))"
)
_KIND = re.compile(r"\s*<\|ref_start\|>([^<]*)(?:<\|ref_end\|>)?")
_ROTATION = re.compile(r"<\|rotate_(?:up|right|down|left)\|>")


@dataclass(frozen=True)
class LayoutBox:
    """One box of a layout answer.

    Attributes:
        kind: the model's label, in lower case with underscores; `unknown` when it gave none.
        bbox: fractions of the page, x0 < x1 and y0 < y1.
        angle: clockwise rotation of the content in degrees: 0, 90, 180 or 270.
        continued: the text goes on from the previous block.
        warnings: what had to be repaired.
    """

    kind: str
    bbox: BBox
    angle: int = 0
    continued: bool = False
    warnings: tuple[str, ...] = ()


def parse_layout(text: str) -> list[LayoutBox]:
    """All boxes of a layout answer, in the order in which they were written. Never raises.

    Swapped corners, coordinates off the grid and sloppy separators are repaired, with a warning on the box; a box
    without an area or with the wrong number of coordinates is left out (`unparsed_layout` has it).
    """
    return [box for piece in _PIECE.findall(text) if (box := _parse_piece(piece)[0]) is not None]


def unparsed_layout(text: str) -> list[str]:
    """Parts of a layout answer that `parse_layout` could make nothing of; whitespace does not count."""
    pieces = [(match.start(), match.group()) for match in _PIECE.finditer(text)]
    rests = [text[: pieces[0][0]] if pieces else text]
    for _, piece in pieces:
        rests.append(_parse_piece(piece)[1])
    return [rest.strip() for rest in rests if rest.strip()]


def _parse_piece(piece: str) -> tuple[LayoutBox | None, str]:
    """One box and what is left of its piece of text; without a box, all of it is left."""
    match = _BOX.match(piece)
    if match is None:
        return None, piece
    warnings: list[str] = []
    values = [float(number) for number in match.groups()]
    clipped = [min(max(value, 0.0), float(GRID)) for value in values]
    if clipped != values:
        warnings.append("coordinates outside the page were clipped")
    x0, x1 = sorted((clipped[0], clipped[2]))
    y0, y1 = sorted((clipped[1], clipped[3]))
    if x0 == x1 or y0 == y1:
        return None, piece
    if (x0, y0) != (clipped[0], clipped[1]):
        warnings.append("swapped corners were put in order")
    rest = piece[match.end() :]
    kind = ""
    if label := _KIND.match(rest):
        kind = re.sub(r"[\s\-]+", "_", label[1].strip().lower())
        rest = rest[label.end() :]
    if not kind:
        kind = "unknown"
        warnings.append("the layout gave no kind")
    rotations = _ROTATION.findall(rest)
    box = LayoutBox(
        kind,
        (x0 / GRID, y0 / GRID, x1 / GRID, y1 / GRID),
        ROTATIONS[rotations[0]] if rotations else 0,
        CONTINUED in rest,
        tuple(warnings),
    )
    return box, _ROTATION.sub("", rest).replace(CONTINUED, "")


def format_layout(boxes: Iterable[LayoutBox | Region]) -> str:
    """Boxes in the layout language, one a line: the inverse of `parse_layout` up to the grid of 1/1000."""
    return "\n".join(_format_box(box) for box in boxes)


def _format_box(box: LayoutBox | Region) -> str:
    x0, x1 = _grid_span(box.bbox[0], box.bbox[2])
    y0, y1 = _grid_span(box.bbox[1], box.bbox[3])
    rotation = _ROTATION_TOKENS[round(box.angle / 90) % 4 * 90]
    tail = CONTINUED if isinstance(box, LayoutBox) and box.continued else ""
    return f"{BOX_START}{x0} {y0} {x1} {y1}{BOX_END}{REF_START}{box.kind}{REF_END}{rotation}{tail}"


def _grid_span(start: float, end: float) -> tuple[int, int]:
    low, high = sorted((start, end))
    # At least one grid step wide, or a thin rule would have no area and be lost on the way back.
    first = min(max(round(low * GRID), 0), GRID - 1)
    return first, max(min(round(high * GRID), GRID), first + 1)
