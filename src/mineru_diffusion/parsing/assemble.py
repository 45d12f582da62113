"""Engine results back into regions. In: finished region jobs. Out: regions with content, confidence and warnings."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Sequence
from dataclasses import replace

from mineru_diffusion.document.formulas import clean_formula
from mineru_diffusion.document.otsl import parse_otsl
from mineru_diffusion.document.tables import table_to_html
from mineru_diffusion.document.types import BBox, Region, around
from mineru_diffusion.engine.types import FinishReason, Result
from mineru_diffusion.parsing.crops import RegionJob
from mineru_diffusion.parsing.furniture import MARGIN, PAGE_NUMBER, is_running_head
from mineru_diffusion.parsing.lines import TextLine
from mineru_diffusion.parsing.table_grid import Run, column_cuts, otsl_row
from mineru_diffusion.parsing.text_blocks import (
    code_block,
    is_itemised,
    list_items,
    looks_like_code,
    paragraphs,
    split_lists,
)
from mineru_diffusion.parsing.torn import FEW_LINES

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
_RUNNING = frozenset({"text", "list", "ref_text", "unknown"})
_NUMBER = r"\s*(?:[A-Z]\.?)?\d+(?:\.\d+)*[a-z]?\s*[.:|—–]"
_IMAGE_CAPTION = re.compile(r"(?:fig(?:ure)?s?\.?|abb(?:ildung)?\.?|图)" + _NUMBER, re.IGNORECASE)
_TABLE_CAPTION = re.compile(r"(?:tab(?:le|elle)?\.?|表)" + _NUMBER, re.IGNORECASE)
_CODE_CAPTION = re.compile(r"(?:(?:code\s+)?listing|code|algorithm(?:us)?|quelltext)" + _NUMBER, re.IGNORECASE)
_WORD = re.compile(r"[^\W\d_]{3}")
_LONGEST_CAPTION = 1000
_DIGITS = 4
_EDGE = 0.1
"""Page numbers stand in this part of the page's height at the top or bottom."""


def finish_region(job: RegionJob) -> list[Region]:
    """The region with what was read.

    Several where a list or a picture stands in running text; none where recovered ink turned out to say nothing.
    """
    if not job.results:
        return [job.region]
    if job.by_line:
        parts = _from_lines(job)
    else:
        results = _answers(job.results)
        parts = [_with_text(_judged(job.region, results), results[0].text)]
    finished = []
    for region in parts:
        if not region.content and region.finish_reason == "stop":
            if region.source.get("layout") == "ink":
                continue
            region = replace(region, warnings=(*region.warnings, "nothing was read here"))
        finished.append(replace(region, kind=_kind_by_content(region)))
    return finished


def _answers(results: Sequence[Result | None]) -> list[Result]:
    return [r if r is not None else Result("", finish_reason="error", error="no answer") for r in results]


def _judged(region: Region, results: Sequence[Result]) -> Region:
    """The region with confidence, finish reason and complaints of its results."""
    return replace(
        region,
        confidence=_confidence(results),
        finish_reason=min((r.finish_reason for r in results), key=_WORST.index),
        warnings=(*region.warnings, *_complaints(results)),
    )


def _from_lines(job: RegionJob) -> list[Region]:
    results = _answers(job.results)
    said: list[list[str]] = [[] for _ in job.lines]
    for line, result in zip(job.piece_line, results, strict=True):
        said[line].append(result.text)
    texts = [line.joined(pieces) for line, pieces in zip(job.lines, said, strict=True)]
    regions = []
    # Headings and the like stay in one piece: their pictures follow them.
    between = job.region.kind in _RUNNING
    pictures = [(line if between else len(texts), _picture(job.region, box)) for box, line in job.pictures]
    parts = _cut(_parts(job, texts, said), {line for line, _ in pictures})
    for kind, first, end in parts:
        regions += [picture for line, picture in pictures if line == first]
        region = job.region
        if len(parts) > 1 or (pictures and between):
            boxes = region.lines[first:end]
            region = replace(region, bbox=around(boxes), lines=boxes)
        inside = [r for r, line in zip(results, job.piece_line, strict=True) if first <= line < end]
        region = _judged(replace(region, kind=kind), inside)
        region = replace(region, line_texts=tuple(texts[first:end]))
        full = [(line, text) for line, text in zip(job.lines[first:end], texts[first:end], strict=True) if text]
        if region.kind in ("text", "list") and looks_like_code([text for _, text in full]):
            region = replace(region, kind="code", source={**region.source, "detected": region.kind})
        regions.append(_with_lines(region, [line for line, _ in full], [text for _, text in full]))
    return regions + [picture for line, picture in pictures if line == len(texts)]


def _picture(region: Region, box: BBox) -> Region:
    """A picture that the layout took for a part of this text."""
    return Region(
        "image", box, angle=region.angle, source={**region.source, "content": "picture", "detected": region.kind}
    )


def _cut(parts: Sequence[tuple[str, int, int]], lines: Collection[int]) -> list[tuple[str, int, int]]:
    """Parts that end before each of these lines."""
    cut = []
    for kind, first, end in parts:
        borders = [first, *sorted(line for line in lines if first < line < end), end]
        cut += [(kind, a, b) for a, b in itertools.pairwise(borders)]
    return cut


def _parts(job: RegionJob, texts: Sequence[str], said: Sequence[Sequence[str]]) -> list[tuple[str, int, int]]:
    """A region by kind, first line and last line + 1: a running head that was taken for its first line, then lists and
    the text around them."""
    kind, start = job.region.kind, 0
    parts: list[tuple[str, int, int]] = []
    running = kind in _RUNNING and len(texts) > 1
    if running and job.region.bbox[1] < MARGIN and is_running_head(said[0]):
        parts, start = [("header", 0, 1)], 1
    if kind in ("text", "list", "unknown") and all(texts):
        found = split_lists(job.lines[start:], texts[start:])
        return parts + [("list" if is_list else kind, a + start, b + start) for is_list, a, b in found]
    return [*parts, (kind, start, len(texts))]


def _with_lines(region: Region, lines: Sequence[TextLine], texts: Sequence[str]) -> Region:
    if region.kind in ("code", "algorithm"):
        return replace(region, content=code_block([line.box for line in lines], texts))
    if region.kind == "equation":
        # Text is no LaTeX; whatever stands in one row stays in one row.
        return replace(region, kind="text", content="\n".join(texts), source={**region.source, "kind": region.kind})
    if region.kind == "table":
        return _table_of_lines(region, lines, texts)
    if region.kind == "list":
        return replace(region, content="\n".join(list_items(lines, texts)))
    if region.kind == "ref_text" and not is_itemised(lines, texts):
        # Small print is taken for references; each line of it as an item would tear the sentences apart.
        kind = "text" if len(lines) > FEW_LINES else region.kind
        source = {**region.source, "detected": region.kind} if kind != region.kind else region.source
        return replace(region, kind=kind, source=source, content="\n\n".join(paragraphs(lines, texts)))
    if region.kind == "ref_text":
        return replace(region, content="\n\n".join(item.strip() for item in list_items(lines, texts)))
    return replace(region, content="\n\n".join(paragraphs(lines, texts, one=region.kind in _ONE_RUN)))


def _table_of_lines(region: Region, lines: Sequence[TextLine], texts: Sequence[str]) -> Region:
    """A table by where its texts stand; plain rows where there are no columns to be seen."""
    region = replace(region, source={**region.source, "kind": region.kind})
    width = max((line.box[2] for line in lines), default=1)
    rows = [
        [Run(text, line.box[0] / width, line.box[2] / width) for line, text in row]
        for _, row in itertools.groupby(zip(lines, texts, strict=True), key=lambda pair: pair[0].box[1])
    ]
    cuts = column_cuts([[(run.left, run.right) for run in row] for row in rows], [len(row) for row in rows])
    table = parse_otsl("".join(otsl_row(row, cuts) for row in rows)) if cuts and len(rows) > 1 else None
    if table is None:
        return replace(region, content="\n".join(" ".join(run.text for run in row) for row in rows))
    warnings = (*region.warnings, "rows and columns told from where the text stands")
    return replace(region, content=table_to_html(table), warnings=warnings)


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
    """Mean over all tokens: long lines count more than short ones.

    Rounded to what means something: which crops share a forward pass changes the last digits, and a run that was
    stopped and taken up again shares them out differently.
    """
    values = [c for r in results for c in r.confidences]
    return round(sum(values) / len(values), _DIGITS) if values else None


def _complaints(results: Sequence[Result]) -> list[str]:
    complaints = []
    for reason in _WORST[:-1]:
        bad = [r for r in results if r.finish_reason == reason]
        if bad:
            part = f" ({len(bad)} of {len(results)} lines)" if len(results) > 1 else ""
            detail = next((f": {r.error}" for r in bad if r.error), "")
            complaints.append(f"{_SAID[reason]}{part}{detail}")
    return complaints


def _kind_by_content(region: Region) -> str:
    """What the text tells better than the picture: page numbers and captions."""
    if region.kind == "title" and "=" in region.content and not _WORD.search(region.content):
        return "text"  # a formula in large type
    at_edge = region.bbox[3] < _EDGE or region.bbox[1] > 1 - _EDGE
    furniture = region.kind in ("header", "footer")
    if (furniture or (at_edge and region.kind in ("text", "ref_text"))) and PAGE_NUMBER.fullmatch(region.content):
        return "page_number"
    if furniture or (at_edge and region.kind == "text"):
        return region.kind
    if region.kind in ("text", "ref_text", "image_caption", "table_caption") and len(region.content) < _LONGEST_CAPTION:
        if _IMAGE_CAPTION.match(region.content):
            return "image_caption"
        if _TABLE_CAPTION.match(region.content):
            return "table_caption"
        if _CODE_CAPTION.match(region.content):
            return "code_caption"
    return region.kind
