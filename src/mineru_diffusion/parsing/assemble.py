"""Engine results back into regions. In: finished region jobs. Out: regions with content, confidence and warnings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from mineru_diffusion.document.formulas import clean_formula
from mineru_diffusion.document.otsl import parse_otsl
from mineru_diffusion.document.tables import table_to_html
from mineru_diffusion.document.types import Region
from mineru_diffusion.engine.types import FinishReason, Result
from mineru_diffusion.parsing.crops import RegionJob
from mineru_diffusion.parsing.text_blocks import code_block, list_items, paragraphs

#: Worst first: a region is as good as its worst line.
_WORST: tuple[FinishReason, ...] = ("error", "repetition", "length", "cancelled", "stop")
_SAID = {
    "error": "could not be read",
    "repetition": "the text began to repeat itself and was cut",
    "length": "the text was cut at the token limit",
    "cancelled": "reading was cancelled",
}
#: Kinds whose lines always make one run of text.
_ONE_RUN = frozenset({"title", "table_caption", "image_caption", "code_caption", "header", "footer", "page_number"})
_PAGE_NUMBER = re.compile(
    r"[-–—\s]*(?:page\s*)?(?:\d{1,4}|[ivxlc]{1,7})(?:\s*(?:of|/)\s*\d{1,4})?[-–—\s.]*", re.IGNORECASE
)
_EDGE = 0.1
"""Page numbers stand in this part of the page's height at the top or bottom."""


def finish_region(job: RegionJob) -> Region | None:
    """The region with what was read; None if recovered ink turned out to say nothing."""
    region = job.region
    results = [r for r in job.results if r is not None]
    if not results:
        return region
    region = replace(
        region,
        confidence=_confidence(results),
        finish_reason=min((r.finish_reason for r in results), key=_WORST.index),
        warnings=(*region.warnings, *_complaints(results)),
    )
    region = _with_lines(region, job, results) if job.by_line else _with_text(region, results[0].text)
    if not region.content:
        if region.source.get("layout") == "ink" and region.finish_reason == "stop":
            return None
        if region.finish_reason == "stop":
            region = replace(region, warnings=(*region.warnings, "nothing was read here"))
    return replace(region, kind="page_number") if _is_page_number(region) else region


def _with_lines(region: Region, job: RegionJob, results: Sequence[Result]) -> Region:
    texts = [""] * len(job.lines)
    for line, result in zip(job.piece_line, results, strict=True):
        texts[line] = f"{texts[line]} {result.text.strip()}".strip()
    kept = [(line, text) for line, text in zip(job.lines, texts, strict=True) if text]
    lines, texts = [line for line, _ in kept], [text for _, text in kept]
    if region.kind in ("code", "algorithm"):
        return replace(region, content=code_block(lines, texts))
    if region.kind in ("table", "equation"):
        # Their structure is unknown: whatever stands in one row stays in one row.
        return replace(region, kind="text", content="\n".join(texts), source={**region.source, "kind": region.kind})
    if region.kind not in _ONE_RUN:
        items = list_items(lines, texts, sure=region.kind == "list")
        if items:
            return replace(region, kind="ref_text" if region.kind == "ref_text" else "list", content="\n".join(items))
    blocks = paragraphs(lines, texts, one=region.kind in _ONE_RUN)
    return replace(region, content="\n\n".join(blocks))


def _with_text(region: Region, text: str) -> Region:
    text = text.strip()
    if region.kind == "table" and text:
        table = parse_otsl(text)
        if table is None:
            return replace(region, content=text, warnings=(*region.warnings, "no table in the answer; kept as text"))
        return replace(region, content=table_to_html(table), warnings=(*region.warnings, *table.warnings))
    if region.kind == "equation":
        return replace(region, content=clean_formula(text))
    return replace(region, content=text)


def _confidence(results: Sequence[Result]) -> float | None:
    """Mean over all tokens: long lines count more than short ones."""
    values = [c for r in results for c in r.confidences]
    return sum(values) / len(values) if values else None


def _complaints(results: Sequence[Result]) -> list[str]:
    complaints = []
    for reason in _WORST[:-1]:
        bad = [r for r in results if r.finish_reason == reason]
        if bad:
            part = f" ({len(bad)} of {len(results)} lines)" if len(results) > 1 else ""
            detail = next((f": {r.error}" for r in bad if r.error), "")
            complaints.append(f"{_SAID[reason]}{part}{detail}")
    return complaints


def _is_page_number(region: Region) -> bool:
    at_edge = region.bbox[3] < _EDGE or region.bbox[1] > 1 - _EDGE
    named = region.kind in ("header", "footer") or (region.kind == "text" and at_edge)
    return named and bool(region.content) and _PAGE_NUMBER.fullmatch(region.content) is not None
