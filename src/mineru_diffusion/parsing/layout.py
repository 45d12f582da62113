"""Which layout detector a checkpoint gets: its own layout task if it has one, else the packaged detector."""

from __future__ import annotations

from dataclasses import replace

from mineru_diffusion.engine.types import DecodingParams, Engine
from mineru_diffusion.parsing.layout_model import ModelLayoutDetector
from mineru_diffusion.parsing.layout_rapid import RapidLayoutDetector
from mineru_diffusion.parsing.layout_types import LayoutDetector, PageLayout

__all__ = ["LayoutDetector", "ModelLayoutDetector", "PageLayout", "RapidLayoutDetector", "choose_detector"]


def choose_detector(
    engine: Engine, params: DecodingParams | None = None, packaged: LayoutDetector | None = None
) -> LayoutDetector:
    """The detector that follows from the checkpoint's tasks.

    Args:
        engine: of the checkpoint.
        params: how regions are decoded; layouts likewise, but their length is not limited by `max_tokens`, which is
            meant for regions.
        packaged: the packaged detector, if it is there already.
    """
    packaged = packaged or RapidLayoutDetector()
    if "layout" not in engine.profile.tasks:
        return packaged
    return ModelLayoutDetector(engine, packaged, replace(params or DecodingParams(), max_tokens=None))
