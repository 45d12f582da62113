"""The images of requests: cut into patches in a thread ahead of time, encoded many at a time, put in their prompts.

Shapes: S patches of a group of images, W decoder width, P prompt tokens.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.profiler import record_function

from mineru_diffusion.engine.beside import Work
from mineru_diffusion.engine.sequence import Sequence
from mineru_diffusion.engine.stats import EngineStats
from mineru_diffusion.engine.transfer import to_device
from mineru_diffusion.model import MinerUDiffusionForConditionalGeneration, MinerUDiffusionProcessor

Patches = tuple[NDArray[np.float32], tuple[int, int, int]]
"""Patch rows of one image, and its grid."""

Claim = Future[Patches] | Image.Image | None
"""An image that is being cut, one that is still to be cut, or a prompt without one."""

GROUP_PATCHES = {"cpu": 1 << 10, "cuda": 1 << 15, "mps": 1 << 13}
"""Patches of one call of the vision tower: bounds its memory; on a CPU, what stays in the caches is faster."""

AHEAD_PIXELS = 1 << 23
"""Pixels of the images that are cut ahead of their turn (24 bytes each once they are cut)."""


BLANK_CONTRAST = 24
"""Grey levels: paper grain and JPEG noise stay below it, faint print does not."""


def is_blank(image: Image.Image) -> bool:
    """Whether a picture shows nothing but paper, perhaps with faint noise; not if it cannot be decoded."""
    if not image.width or not image.height:
        return False
    try:
        darkest, lightest = image.convert("L").getextrema()
    except Exception:  # as when it is cut, where the request gets its error
        return False
    return lightest - darkest < BLANK_CONTRAST  # type: ignore[operator]


class ImageQueue:
    """Images that wait for their request's turn.

    Args:
        model: has the vision tower and the embeddings.
        processor: cuts images.
        stats: told about time and numbers.
    """

    def __init__(
        self, model: MinerUDiffusionForConditionalGeneration, processor: MinerUDiffusionProcessor, stats: EngineStats
    ) -> None:
        self._model, self._processor, self._stats = model, processor, stats
        self._images: dict[int, Image.Image] = {}
        self._cut: dict[int, Future[Patches]] = {}
        self._pixels: dict[int, int] = {}
        self._patches_of = processor.image_processor.patches
        self._problems: dict[int, str] = {}
        self._worker: ThreadPoolExecutor | None = None

    def add(self, request_id: int, image: Image.Image) -> None:
        """An image that will be needed."""
        self._images[request_id] = image
        self._look_ahead()

    def drop(self, request_id: int) -> None:
        """An image that will not be needed after all."""
        self._images.pop(request_id, None)
        self._problems.pop(request_id, None)
        future = self._take(request_id)
        if future is not None:
            future.cancel()

    def _take(self, request_id: int) -> Future[Patches] | None:
        self._pixels.pop(request_id, None)
        return self._cut.pop(request_id, None)

    def clear(self) -> None:
        """Drop everything and let the thread end."""
        for request_id in [*self._images, *self._cut, *self._problems]:
            self.drop(request_id)
        if self._worker is not None:
            self._worker.shutdown(wait=True, cancel_futures=True)
            self._worker = None

    def _look_ahead(self) -> None:
        while self._images and sum(self._pixels.values()) < AHEAD_PIXELS:
            if self._worker is None:
                self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="patches")
            request_id = next(iter(self._images))
            image = self._images.pop(request_id)
            self._pixels[request_id] = min(image.width * image.height, self._processor.image_processor.max_pixels)
            self._cut[request_id] = self._worker.submit(self._patches_of, image)

    @torch.inference_mode()
    def embed(self, sequences: Iterable[Sequence]) -> list[tuple[Sequence, str]]:
        """Give each sequence its embedded prompt [P, W]; returns those for which that failed, with the reason."""
        failed: list[tuple[Sequence, str]] = []
        claimed: list[tuple[Sequence, Claim]] = []
        for sequence in sequences:
            problem = self._problems.pop(sequence.id, None)
            if problem is not None:
                failed.append((sequence, problem))
            elif sequence.prompt_embeds is None:  # else its pages were taken away, or it was encoded beside a pass
                claimed.append((sequence, self._claim(sequence)))
        return failed + self._encode_all(claimed)

    def ahead(self, waiting: Iterable[Sequence]) -> Work | None:
        """What embeds the next group of waiting sequences; None if enough are ready, or none has an image. Which they
        are is settled here. Problems are kept until `embed` is asked for these sequences."""
        room = self._group_patches
        merge = self._processor.image_processor.merge_size**2
        claimed: list[tuple[Sequence, Claim]] = []
        for sequence in waiting:
            if sequence.prompt_embeds is None and sequence.id not in self._problems:
                # Only what the thread that cuts was given already.
                if sequence.id not in self._cut:
                    break
                if room < len(sequence.prompt_ids) * merge and claimed:
                    break
                claimed.append((sequence, self._claim(sequence)))
            room -= len(sequence.prompt_ids) * merge
            if room <= 0:
                break
        if not claimed:
            return None

        @torch.inference_mode()
        def work() -> list[Tensor]:
            try:
                failed = self._encode_all(claimed)
            except Exception as error:  # their images are taken: without an answer they would wait for ever
                failed = [(s, f"encoding the image failed: {error}") for s, _ in claimed if s.prompt_embeds is None]
            self._problems.update((sequence.id, problem) for sequence, problem in failed)
            made = [sequence.prompt_embeds for sequence, _ in claimed if sequence.prompt_embeds is not None]
            self._stats.images_beside += len(made)
            return made

        return work

    @property
    def _group_patches(self) -> int:
        return GROUP_PATCHES[self._model.language_model.lm_head.weight.device.type]

    def _claim(self, sequence: Sequence) -> Claim:
        """Take a sequence's image out of the queue, and cut further ones."""
        self._look_ahead()
        image, future = self._images.pop(sequence.id, None), self._take(sequence.id)
        return image if future is None else future

    def _encode_all(self, claimed: list[tuple[Sequence, Claim]]) -> list[tuple[Sequence, str]]:
        """Embed the prompts of these sequences; returns those for which that failed, with the reason."""
        failed: list[tuple[Sequence, str]] = []
        ready: list[tuple[Sequence, Patches]] = []
        for sequence, claim in claimed:
            if claim is None:
                self._embed(sequence, None)
                continue
            with self._stats.timed("prepare"):
                try:
                    cut = (
                        claim.result() if isinstance(claim, Future) else self._processor.image_processor.patches(claim)
                    )
                except Exception as error:  # Pillow reads lazily, and its decoders raise all sorts
                    failed.append((sequence, f"the image cannot be decoded: {error}"))
                    continue
            ready.append((sequence, cut))
        # Images of one size share an attention call of the vision tower.
        ready.sort(key=lambda item: item[1][0].shape[0])
        group: list[tuple[Sequence, Patches]] = []
        size = 0
        for item in ready:
            patches = item[1][0].shape[0]
            if group and size + patches > self._group_patches:
                failed += self._encode(group)
                group, size = [], 0
            group.append(item)
            size += patches
        return failed + self._encode(group) if group else failed

    def _encode(self, group: list[tuple[Sequence, Patches]]) -> list[tuple[Sequence, str]]:
        weight = self._model.language_model.lm_head.weight
        try:
            with self._stats.timed("vision"), record_function("vision"):
                rows = np.concatenate([patches for _, (patches, _) in group])
                pixels = to_device(rows, weight.device).to(weight.dtype)
                visual = self._model.encode_images(pixels, [grid for _, (_, grid) in group])
                merge = self._processor.image_processor.merge_size**2
                pieces = visual.split([patches.shape[0] // merge for _, (patches, _) in group])
                for (sequence, _), piece in zip(group, pieces, strict=True):
                    self._embed(sequence, piece)
        except (RuntimeError, MemoryError, ValueError) as error:
            return [(sequence, f"encoding the image failed: {error}") for sequence, _ in group]
        self._stats.images += len(group)
        self._stats.patches += rows.shape[0]
        return []

    def _embed(self, sequence: Sequence, visual: Tensor | None) -> None:
        ids = to_device(torch.tensor([sequence.prompt_ids]), self._model.language_model.lm_head.weight.device)
        sequence.prompt_embeds = self._model.embed(ids, visual)[0]
