"""How the regions of a page that was read are read again: the same crops, region by region.

In: a page image and its regions. Out: one plan for each region that has something to read.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, replace

from PIL import Image

from mineru_diffusion.document.crops import crop_region
from mineru_diffusion.document.types import Page, Region
from mineru_diffusion.engine.types import CheckpointProfile, DecodingParams, Request, Result
from mineru_diffusion.parsing.assemble import finish_region
from mineru_diffusion.parsing.crops import RegionJob, plan_page

CROP_WIDTH = 900
"""Pixels of a crop's picture on the page at most."""


@dataclass(frozen=True)
class RegionPlan:
    """What a region asks for.

    Attributes:
        region: as it was read.
        job: how its crops' texts make its content.
        requests: its crops, for the diffusion checkpoint; `lines` says of which line each is a piece.
        twin_requests, twin_lines: likewise for the checkpoint that it is compared with.
        picture: the region as JPEG.
        truth: what the document's own text layer says there; "" if it has none.
    """

    region: Region
    job: RegionJob
    requests: tuple[Request, ...]
    lines: tuple[int, ...]
    twin_requests: tuple[Request, ...]
    twin_lines: tuple[int, ...]
    picture: bytes
    truth: str = ""

    def text(self, results: Sequence[Result]) -> str:
        """The content that these results of `requests` make."""
        return "\n".join(region.content for region in finish_region(replace(self.job, results=list(results))))


def plan_regions(
    image: Image.Image, page: Page, profile: CheckpointProfile, twin: CheckpointProfile | None = None
) -> list[RegionPlan]:
    """Plans for the regions that have crops, in reading order.

    Args:
        image: the page, as it was read.
        page: its regions.
        profile: of the diffusion checkpoint.
        twin: of the other one, which may want other crops.
    """
    jobs, requests = _by_order(image, page, profile)
    others = (jobs, requests) if twin is None or _alike(profile, twin) else _by_order(image, page, twin)
    return [
        RegionPlan(
            region,
            jobs[region.order],
            requests[region.order],
            tuple(jobs[region.order].piece_line),
            others[1][region.order],
            tuple(others[0][region.order].piece_line),
            _picture(image, region),
        )
        for region in page.regions
        if requests.get(region.order) and others[1].get(region.order)
    ]


def _by_order(
    image: Image.Image, page: Page, profile: CheckpointProfile
) -> tuple[dict[int, RegionJob], dict[int, tuple[Request, ...]]]:
    jobs, asked = plan_page(image, page.regions, profile, DecodingParams())
    requests: dict[int, tuple[Request, ...]] = {}
    for number, _, request in asked:
        order = jobs[number].region.order
        requests[order] = (*requests.get(order, ()), request)
    return {job.region.order: job for job in jobs}, requests


def _alike(one: CheckpointProfile, other: CheckpointProfile) -> bool:
    """Both want the same crops, and are asked with the same words."""
    return all(
        getattr(one, name) == getattr(other, name)
        for name in ("text_unit", "line_height", "line_max_aspect", "tasks", "prompts")
    )


def _picture(image: Image.Image, region: Region) -> bytes:
    crop = crop_region(image, region.bbox, region.angle, margin=4, min_side=0)
    crop.thumbnail((CROP_WIDTH, CROP_WIDTH))
    buffer = io.BytesIO()
    crop.save(buffer, format="JPEG", quality=82)
    return buffer.getvalue()
