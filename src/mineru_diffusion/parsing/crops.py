"""From a page's regions to the requests that read them. In: page image and regions. Out: jobs with crops.

What a checkpoint cannot do is decided here: tables and equations without a task of their own are read as text lines,
and the region says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from PIL import Image

from mineru_diffusion.document.crops import crop_region, fit_line, pixel_box
from mineru_diffusion.document.types import BBox, Region
from mineru_diffusion.engine.types import CheckpointProfile, DecodingParams, Request, Result, Task
from mineru_diffusion.parsing.lines import RegionLines, TextLine, split_lines
from mineru_diffusion.parsing.orientation import turn_back

#: Kinds that keep their picture and are not read.
PICTURES = frozenset({"image", "chart"})
TASK_OF_KIND: dict[str, Task] = {"table": "table", "equation": "formula"}
LINE_MARGIN = 6
"""Pixels of paper around a region in which its lines are looked for: detectors cut close."""
LIKE_BODY = 0.88
"""Lines at least this part as high as those of the body are no small print."""
NO_TASK = "{kind} read as text lines: the checkpoint has no {task} task"


@dataclass
class RegionJob:
    """A region on its way through the engine.

    Attributes:
        region: with its warnings and sources so far.
        lines: its text lines, when it is read line by line (or is a title, whose height tells its level).
        by_line: it is read line by line.
        piece_line: for every request, the index of the line that it is a piece of.
        results: one slot for every request.
        height: cap height of its lines as a fraction of the page's height, for titles; else 0.
        like_body: it is set like the body text of its page: lines as high, none after the first set in.
        pictures: boxes on the page of pictures that the layout took for text, and the line before which each stands.
    """

    region: Region
    lines: tuple[TextLine, ...] = ()
    by_line: bool = False
    piece_line: list[int] = field(default_factory=list)
    results: list[Result | None] = field(default_factory=list)
    height: float = 0.0
    like_body: bool = False
    pictures: tuple[tuple[BBox, int], ...] = ()

    @property
    def done(self) -> bool:
        return all(r is not None for r in self.results)


def plan_page(
    image: Image.Image, regions: Sequence[Region], profile: CheckpointProfile, params: DecodingParams
) -> tuple[list[RegionJob], list[tuple[int, int, Request]]]:
    """Jobs for a page's regions, and the requests as (job, slot, request).

    Regions without any ink have no job: there is nothing to read, and asking would invite invention.
    """
    usual = _usual_height(image, regions) if profile.text_unit == "line" else None
    jobs: list[RegionJob] = []
    requests: list[tuple[int, int, Request]] = []
    for region in regions:
        job, asked = _plan_region(image, region, profile, params, usual)
        if job is None:
            continue
        requests += [(len(jobs), slot, request) for slot, request in enumerate(asked)]
        jobs.append(job)
    return jobs, requests


def _plan_region(
    image: Image.Image, region: Region, profile: CheckpointProfile, params: DecodingParams, usual: float | None
) -> tuple[RegionJob | None, list[Request]]:
    if region.kind in PICTURES:
        return RegionJob(replace(region, source={**region.source, "content": "picture"})), []
    task = TASK_OF_KIND.get(region.kind, "text")
    by_line = profile.text_unit == "line" and task == "text"
    if task not in profile.tasks:
        warning = NO_TASK.format(kind=region.kind, task=task)
        region = replace(region, warnings=(*region.warnings, warning))
        task, by_line = "text", profile.text_unit == "line"
    region = replace(region, source={**region.source, "content": "model"})
    if by_line:
        return _plan_lines(image, region, profile, params, usual)
    crop = crop_region(image, region.bbox, region.angle)
    job = RegionJob(region, piece_line=[0], results=[None])
    if region.kind == "title":
        job.height = _title_height(split_lines(crop_region(image, region.bbox, region.angle, min_side=0)), image)
    return job, [Request(crop, task, params=params)]


def _plan_lines(
    image: Image.Image, region: Region, profile: CheckpointProfile, params: DecodingParams, usual: float | None
) -> tuple[RegionJob | None, list[Request]]:
    crop = crop_region(image, region.bbox, region.angle, margin=LINE_MARGIN, min_side=0)
    table = region.kind == "table"
    found = split_lines(crop, max_aspect=profile.line_max_aspect, usual_height=usual, cells=table)
    if not found.lines:
        return None, []
    requests, piece_line = [], []
    # Wider paper than this is a visual token that no training line had.
    multiple = profile.image_factor or profile.line_height
    for i, line in enumerate(found.lines):
        for piece in line.pieces:
            fitted = fit_line(found.crop(piece), height=profile.line_height, multiple=multiple)
            requests.append(Request(fitted, "text", params=params))
            piece_line.append(i)
    boxes = tuple(_on_page(found.in_region(line.box), crop.size, region, image.size) for line in found.lines)
    job = RegionJob(
        region=replace(region, lines=boxes),
        lines=found.lines,
        by_line=True,
        piece_line=piece_line,
        results=[None] * len(requests),
        height=_title_height(found, image) if region.kind == "title" else 0.0,
        like_body=_is_like_body(found.lines, usual),
        pictures=tuple(
            (_on_page(found.in_region(box), crop.size, region, image.size), line) for box, line in found.pictures
        ),
    )
    return job, requests


def _usual_height(image: Image.Image, regions: Sequence[Region]) -> float | None:
    """Ink height in pixels of a line of body text on this page, from its largest text regions."""
    texts = [r for r in regions if r.kind in ("text", "list", "ref_text")]
    texts.sort(key=lambda r: (r.bbox[0] - r.bbox[2]) * (r.bbox[3] - r.bbox[1]))
    heights: list[int] = []
    for region in texts[:3]:
        crop = crop_region(image, region.bbox, region.angle, margin=LINE_MARGIN, min_side=0)
        heights += [line.ink_height for line in split_lines(crop).lines]
    return median(heights) if len(heights) >= 4 else None


def _is_like_body(lines: Sequence[TextLine], usual: float | None) -> bool:
    tallest = max(line.ink_height for line in lines)
    return usual is not None and tallest >= LIKE_BODY * usual and not any(line.indented for line in lines[1:])


def _title_height(found: RegionLines, image: Image.Image) -> float:
    return median(line.cap_height for line in found.lines) / image.height if found.lines else 0.0


def _on_page(box: tuple[int, int, int, int], size: tuple[int, int], region: Region, page: tuple[int, int]) -> BBox:
    """A box in pixels of the upright crop as fractions of the page."""
    x0, y0, x1, y1 = box
    part = turn_back((x0 / size[0], y0 / size[1], x1 / size[0], y1 / size[1]), region.angle)
    left, top, right, bottom = pixel_box(page, region.bbox, margin=LINE_MARGIN)
    wide, high = right - left, bottom - top
    return (
        (left + part[0] * wide) / page[0],
        (top + part[1] * high) / page[1],
        (left + part[2] * wide) / page[0],
        (top + part[3] * high) / page[1],
    )
