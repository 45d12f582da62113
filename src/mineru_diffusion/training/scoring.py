"""How alike two readings of one thing are, by the metric of its task: 1 is the same, 0 shares nothing. The one measure
that evaluation during training and mining by consistency share.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from mineru_diffusion.document.layout_grammar import parse_layout
from mineru_diffusion.document.otsl import otsl_to_html
from mineru_diffusion.engine.types import Task
from mineru_diffusion.evaluation.formulas import formula_similarity
from mineru_diffusion.evaluation.layout import page_iou
from mineru_diffusion.evaluation.metrics import normalised_edit_distance
from mineru_diffusion.evaluation.tables import teds


def similarity(task: Task, reading: str, other: str) -> float:
    """1 - normalised edit distance for text, TEDS for tables, token edit similarity for formulas, PageIoU for layouts.

    Where one of two tables cannot be read as one, they share nothing, unless the texts are equal.
    """
    if reading == other:
        return 1.0
    if task == "table":
        html = otsl_to_html(other)
        return teds(otsl_to_html(reading), html) if "<table" in html else 0.0
    if task == "formula":
        return formula_similarity(reading, other)
    if task == "layout":
        return page_iou(*([box.bbox for box in parse_layout(text)] for text in (reading, other)))
    return 1.0 - normalised_edit_distance(reading, other)


def consistency(task: Task, readings: Sequence[str]) -> float:
    """Mean similarity over all pairs of readings (MinerU-Diffusion, arXiv 2603.22458, its stage 2); 1 for fewer than
    two."""
    pairs = list(combinations(readings, 2))
    return sum(similarity(task, a, b) for a, b in pairs) / len(pairs) if pairs else 1.0
