"""The images of requests: cut into patches in a thread ahead of time, encoded many at a time, put in their prompts.

Shapes: S patches of a group of images, W decoder width, P prompt tokens.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Several
from concurrent.futures import Future

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.profiler import record_function

from mineru_diffusion.engine.beside import Beside, LazyThread
from mineru_diffusion.engine.sequence import Sequence
from mineru_diffusion.engine.stats import EngineStats
from mineru_diffusion.engine.transfer import to_device
from mineru_diffusion.errors import EngineError
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
        overlap: `begin` encodes; False: only `embed` does.
    """

    def __init__(
        self,
        model: MinerUDiffusionForConditionalGeneration,
        processor: MinerUDiffusionProcessor,
        stats: EngineStats,
        *,
        overlap: bool = False,
    ) -> None:
        self._model, self._processor, self._stats = model, processor, stats
        self._weight = model.language_model.lm_head.weight
        self._images: dict[int, Image.Image] = {}
        self._cut: dict[int, Future[Patches]] = {}
        self._pixels: dict[int, int] = {}
        self._cutter = LazyThread("patches")
        self._beside = Beside(self._weight.device) if overlap else None
        self._begun: set[int] = set()

    def add(self, request_id: int, image: Image.Image) -> None:
        """An image that will be needed."""
        self._images[request_id] = image
        self._look_ahead()

    def drop(self, request_id: int) -> None:
        """An image that will not be needed after all."""
        self._images.pop(request_id, None)
        self._begun.discard(request_id)
        future = self._take(request_id)
        if future is not None:
            future.cancel()

    def _take(self, request_id: int) -> Future[Patches] | None:
        self._pixels.pop(request_id, None)
        return self._cut.pop(request_id, None)

    def close(self) -> None:
        """Drop everything and let the threads end."""
        for request_id in [*self._images, *self._cut]:
            self.drop(request_id)
        self._cutter.close()
        if self._beside is not None:
            self._beside.close()

    def _look_ahead(self) -> None:
        while self._images and sum(self._pixels.values()) < AHEAD_PIXELS:
            request_id = next(iter(self._images))
            image = self._images.pop(request_id)
            self._pixels[request_id] = min(image.width * image.height, self._processor.image_processor.max_pixels)
            self._cut[request_id] = self._cutter.submit(self._processor.image_processor.patches, image)

    def embed(self, sequences: Iterable[Sequence]) -> None:
        """Give each sequence that has none its embedded prompt [P, W], or its problem.

        Raises:
            EngineError: the device failed in what `begin` began.
        """
        # What was begun is not asked of the sequences, where it would depend on how far the thread is.
        new = [s for s in sequences if s.id in self._begun or s.to_embed]
        if not new:
            return
        self._finish()
        claimed = [(s, self._claim(s)) for s in new if s.to_embed]
        try:
            self._encode_all(claimed)
        except BaseException:
            self._give_back(claimed)
            raise

    def begin(self, waiting: Iterable[Sequence]) -> None:
        """Start to embed the next group of waiting sequences beside what the caller does, until `embed` is asked for
        one of them. Nothing is started before that, or if enough are ready. Which they are is settled here.

        Raises:
            EngineError: the device failed.
        """
        if self._beside is None or self._begun:
            return
        self._finish()
        room = self._group_patches
        merge = self._processor.image_processor.merge_size**2
        claimed: list[tuple[Sequence, Claim]] = []
        for sequence in waiting:
            if sequence.to_embed:
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
            return

        def work() -> list[Tensor]:
            self._stats.images_beside += self._encode_all(claimed)
            return [sequence.prompt_embeds for sequence, _ in claimed if sequence.prompt_embeds is not None]

        self._begun = {sequence.id for sequence, _ in claimed}
        try:
            self._beside.start(work)
        except BaseException:
            self._begun.clear()
            self._give_back(claimed)
            raise

    def _finish(self) -> None:
        if self._beside is not None:
            try:
                self._beside.finish()
            except (RuntimeError, MemoryError) as error:
                self._begun.clear()
                raise EngineError(f"encoding images failed: {error}") from error
            self._begun.clear()

    @property
    def _group_patches(self) -> int:
        return GROUP_PATCHES[self._weight.device.type]

    def _claim(self, sequence: Sequence) -> Claim:
        """Take a sequence's image out of the queue, and cut further ones."""
        self._look_ahead()
        image, future = self._images.pop(sequence.id, None), self._take(sequence.id)
        return image if future is None else future

    def _give_back(self, claimed: list[tuple[Sequence, Claim]]) -> None:
        """Have images that were claimed and not encoded for another time."""
        for sequence, claim in claimed:
            if sequence.to_embed:
                if isinstance(claim, Future):
                    self._cut[sequence.id] = claim
                elif claim is not None:
                    self._images[sequence.id] = claim

    @torch.inference_mode()
    def _encode_all(self, claimed: list[tuple[Sequence, Claim]]) -> int:
        """Embed the prompts of these sequences; returns how many images that were. No error leaves this: a claimed
        image is nowhere else, so its request must get an answer."""
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
                    sequence.problem = f"the image cannot be decoded: {error}"
                    continue
            ready.append((sequence, cut))
        # Images of one size share an attention call of the vision tower.
        ready.sort(key=lambda item: item[1][0].shape[0])
        group: list[tuple[Sequence, Patches]] = []
        size = encoded = 0
        for item in ready:
            patches = item[1][0].shape[0]
            if group and size + patches > self._group_patches:
                encoded += self._encode(group)
                group, size = [], 0
            group.append(item)
            size += patches
        return encoded + (self._encode(group) if group else 0)

    def _encode(self, group: list[tuple[Sequence, Patches]]) -> int:
        """Embed the prompts of some images; returns how many could be encoded."""
        try:
            pieces = self._visual([patches for _, patches in group])
        except Exception as error:
            problem = f"encoding the image failed: {error}"
        else:
            for (sequence, _), piece in zip(group, pieces, strict=True):
                self._embed(sequence, piece)
            self._stats.images += len(group)
            self._stats.patches += sum(patches.shape[0] for _, (patches, _) in group)
            return len(group)
        if len(group) > 1:  # too much for the memory at once, or one of them is at fault
            half = len(group) // 2
            return self._encode(group[:half]) + self._encode(group[half:])
        group[0][0].problem = problem
        return 0

    def _visual(self, images: list[Patches]) -> Several[Tensor]:
        """Visual tokens [M, W] of each image, in one call of the vision tower."""
        with self._stats.timed("vision"), record_function("vision"):
            rows = np.concatenate([patches for patches, _ in images])
            pixels = to_device(rows, self._weight.device).to(self._weight.dtype)
            visual = self._model.encode_images(pixels, [grid for _, grid in images])
            merge = self._processor.image_processor.merge_size**2
            return visual.split([patches.shape[0] // merge for patches, _ in images])

    def _embed(self, sequence: Sequence, visual: Tensor | None) -> None:
        # Counted here, so that nothing waits for the device.
        image_tokens = sequence.prompt_ids.count(self._model.config.image_token_id)
        try:
            ids = to_device(torch.tensor([sequence.prompt_ids]), self._weight.device)
            sequence.prompt_embeds = self._model.embed(ids, visual, image_tokens)[0]
        except Exception as error:
            sequence.problem = f"embedding the prompt failed: {error}"
