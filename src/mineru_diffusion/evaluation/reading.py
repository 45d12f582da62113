"""Crops through the engine as the parser would send them. In: images and a task. Out: texts and what decoding cost."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image

from mineru_diffusion.document.crops import fit_line, layout_image, resize_by_need
from mineru_diffusion.engine.types import CheckpointProfile, DecodingParams, Engine, Request, Result, Task
from mineru_diffusion.parsing.lines import line_pieces
from mineru_diffusion.parsing.pieces import join_pieces


@dataclass(frozen=True)
class Reading:
    """What the engine made of some images.

    Attributes:
        texts: one for every image.
        results: of every request; a long line is several.
        seconds: wall time, for orientation only.
    """

    texts: tuple[str, ...]
    results: tuple[Result, ...]
    seconds: float

    @property
    def tokens_per_pass(self) -> float:
        """Generated tokens over forward passes, each request's own passes counted (prompt included)."""
        return sum(len(r.tokens) for r in self.results) / max(1, sum(r.nfe for r in self.results))

    @property
    def tokens_per_step(self) -> float:
        """Generated tokens over denoising steps that decided one of them: 1 exactly when every token had its own."""
        steps = sum(len(set(r.steps)) for r in self.results)
        return sum(len(r.tokens) for r in self.results) / max(1, steps)

    @property
    def confidence(self) -> float:
        """Mean token confidence."""
        values = [c for r in self.results for c in r.confidences]
        return sum(values) / max(1, len(values))

    @property
    def unfinished(self) -> int:
        """Requests that did not end with a stop token."""
        return sum(r.finish_reason != "stop" for r in self.results)


def read_images(
    engine: Engine,
    images: Sequence[Image.Image],
    task: Task,
    params: DecodingParams,
    *,
    multiple: int = 1,
    force: bool = False,
) -> Reading:
    """Send images as the parser sends crops of this task: lines in pieces of the checkpoint's height and length where
    it reads lines, pages squashed to its layout size, anything else at its own size.

    Args:
        engine: of the checkpoint.
        images: any mode.
        task: what to ask.
        params: how to decode.
        multiple: widths of line crops are multiples of this many pixels.
        force: ask with the task's prompt even if the checkpoint does not declare the task.
    """
    crops: list[Image.Image] = []
    image_of_crop: list[int] = []
    glued: list[frozenset[int]] = []
    for number, image in enumerate(images):
        pieces, inside = _crops(engine, image, task, multiple)
        crops += pieces
        image_of_crop += [number] * len(pieces)
        glued.append(inside)
    prompt = engine.profile.prompts.get(task, CheckpointProfile().prompts[task]) if force else None
    started = time.perf_counter()
    results = engine.generate([Request(crop, task, prompt, params) for crop in crops])
    seconds = time.perf_counter() - started
    parts: list[list[str]] = [[] for _ in images]
    for number, result in zip(image_of_crop, results, strict=True):
        parts[number].append(result.text)
    return Reading(tuple(map(join_pieces, parts, glued)), tuple(results), seconds)


def _crops(engine: Engine, image: Image.Image, task: Task, multiple: int) -> tuple[list[Image.Image], frozenset[int]]:
    profile = engine.profile
    if task == "layout":
        return [layout_image(image.convert("RGB"), profile.layout_image_size)], frozenset()
    if task == "text" and profile.text_unit == "line":
        pieces, glued = line_pieces(image, profile.line_max_aspect)
        return [fit_line(piece, height=profile.line_height, multiple=multiple) for piece in pieces], glued
    return [resize_by_need(image.convert("RGB"))], frozenset()
