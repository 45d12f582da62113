"""The local engine: requests on this machine's model."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from collections.abc import Sequence as Several
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from mineru_diffusion.diffusion.unmasking import make_policy
from mineru_diffusion.engine.cache import PagedCache
from mineru_diffusion.engine.devices import choose_device, choose_dtype, default_cache_bytes, default_max_rows
from mineru_diffusion.engine.loop import DecodingLoop, LoopCounters
from mineru_diffusion.engine.sequence import Sequence
from mineru_diffusion.engine.types import CheckpointProfile, DecodingParams, Request, Result
from mineru_diffusion.errors import EngineError, RequestTooLarge, UsageError
from mineru_diffusion.model import MinerUDiffusionForConditionalGeneration
from mineru_diffusion.model.checkpoint import Checkpoint, load_checkpoint

VISION_PATCHES = 1 << 14
"""Patches of one call of the vision tower: bounds its memory."""


def new_sequence(
    request_id: int,
    prompt_ids: list[int],
    params: DecodingParams,
    profile: CheckpointProfile,
    *,
    block_length: int,
    mask_id: int,
    default_stops: frozenset[int],
    tag: object = None,
) -> Sequence:
    """A request's state, with the checkpoint's defaults filled in.

    Raises:
        UsageError: a parameter is out of range.
    """
    max_tokens = profile.max_tokens if params.max_tokens is None else params.max_tokens
    if max_tokens < 1:
        raise UsageError(f"max_tokens must be at least 1, not {max_tokens}")
    if not prompt_ids:
        raise UsageError("the prompt is empty")
    if params.temperature < 0:
        raise UsageError(f"the temperature must not be negative, not {params.temperature}")
    try:
        policy = make_policy(
            params.policy or "threshold",
            threshold=profile.threshold if params.threshold is None else params.threshold,
            steps=params.steps,
            factor=params.factor,
            gamma=params.gamma,
            block_length=block_length,
        )
    except ValueError as error:
        raise UsageError(str(error)) from error
    return Sequence(
        id=request_id,
        prompt_ids=prompt_ids,
        block_length=block_length,
        mask_id=mask_id,
        policy=policy,
        max_tokens=max_tokens,
        stop_ids=default_stops if params.stop_ids is None else frozenset(params.stop_ids),
        temperature=params.temperature,
        skip_after_stop=True if params.skip_after_stop is None else params.skip_after_stop,
        guard=params.repetition_guard,
        generator=torch.Generator().manual_seed(params.seed) if params.temperature > 0 else None,
        tag=tag,
    )


def _stop_ids(model: MinerUDiffusionForConditionalGeneration) -> frozenset[int]:
    """End tokens as the checkpoint's generation configuration, or its config, has them."""
    for source in (model.generation_config, model.config, model.config.text_config):
        eos = getattr(source, "eos_token_id", None)
        if eos is not None:
            return frozenset(int(i) for i in (eos if isinstance(eos, (list, tuple)) else [eos]))
    return frozenset()


class LocalEngine:
    """The row engine of docs/design.md, section 5. Not thread-safe: one thread drives it.

    Args:
        checkpoint: model, processor and profile.
        max_rows: rows of a forward pass; None: by device.
        cache_bytes: memory of the key/value cache at most; None: by device.
        block_length: another block length than the checkpoint's own.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        max_rows: int | None = None,
        cache_bytes: int | None = None,
        block_length: int | None = None,
    ) -> None:
        self._profile = checkpoint.profile
        self._processor = checkpoint.processor
        self._model = checkpoint.model
        text = self._model.config.text_config
        block_length = block_length or self._profile.block_length
        weight = self._model.language_model.lm_head.weight
        page = PagedCache.page_bytes(
            text.num_hidden_layers, text.num_key_value_heads, text.head_dim, block_length, weight.dtype
        )
        self._page_bytes = page
        self.loop = DecodingLoop(
            self._model,
            block_length=block_length,
            max_rows=max_rows or default_max_rows(weight.device),
            max_pages=max(1, (cache_bytes or default_cache_bytes(weight.device)) // page),
        )
        vocabulary = self._processor.tokenizer.get_vocab()
        ends = {vocabulary[token] for token in ("<|im_end|>", "<|endoftext|>") if token in vocabulary}
        # Exported checkpoints list all of these; the published one may list one.
        self._stops = _stop_ids(self._model) | ends
        self._ids = count()
        self._images: dict[int, Image.Image] = {}
        self._done: deque[tuple[int, Result]] = deque()
        self._closed = False

    @property
    def profile(self) -> CheckpointProfile:
        return self._profile

    @property
    def image_factor(self) -> int:
        """Side in pixels of the square that becomes one visual token."""
        return self._processor.image_processor.factor

    @property
    def counters(self) -> LoopCounters:
        """What the loop did so far."""
        return self.loop.counters

    def submit(self, request: Request) -> int:
        """Queue a request; returns its id.

        A request that can never run (too large for the cache, an impossible image) still gets an id; its result has
        `finish_reason` `error` and the reason, so that the others go on.

        Raises:
            UsageError: a task that the checkpoint does not have, or a parameter out of range.
            EngineError: the engine is closed.
        """
        if self._closed:
            raise EngineError("the engine is closed")
        prompt = request.prompt
        if prompt is None:
            prompt = self._profile.prompts.get(request.task)
            if prompt is None or request.task not in self._profile.tasks:
                raise UsageError(
                    f"this checkpoint cannot do {request.task!r}; it can do {', '.join(self._profile.tasks)}"
                )
        request_id = next(self._ids)
        images = self._processor.image_processor
        try:
            counts = [] if request.image is None else [images.tokens(request.image)]
            text = self._processor.prompt(prompt, images=len(counts), system=self._profile.system_prompt)
            prompt_ids = self._processor.expand(text, counts)
        except ValueError as error:
            self._fail(request_id, request, str(error))
            return request_id
        sequence = new_sequence(
            request_id,
            prompt_ids,
            request.params,
            self._profile,
            block_length=self.loop.block_length,
            mask_id=self.loop.mask_id,
            default_stops=self._stops,
            tag=request.tag,
        )
        if not self.loop.scheduler.fits(sequence):
            pages, room = sequence.reserved_pages, self.loop.cache.max_pages
            problem = RequestTooLarge(
                f"the request needs {pages} cache pages ({pages * self._page_bytes / 2**20:.0f} MiB: {len(prompt_ids)} "
                f"prompt and up to {sequence.max_tokens} generated tokens), the cache has {room}; "
                "lower max_tokens or the image size, or enlarge the cache"
            )
            self._fail(request_id, request, str(problem))
            return request_id
        if request.image is not None:
            self._images[request_id] = request.image
        self.loop.scheduler.waiting.append(sequence)
        return request_id

    def _fail(self, request_id: int, request: Request, message: str) -> None:
        self._done.append((request_id, Result(text="", finish_reason="error", error=message, tag=request.tag)))

    def stream(self) -> Iterator[tuple[int, Result]]:
        """Run until nothing is queued, yielding results in the order in which they finish. Requests may be submitted
        and cancelled between two results."""
        scheduler = self.loop.scheduler
        while True:
            while self._done:
                yield self._done.popleft()
            self._prepare(scheduler.admit())
            if not scheduler.running:
                if not scheduler.waiting and not self._done:
                    return
                continue
            try:
                finished = list(self.loop.run_pass())
            except (RuntimeError, MemoryError) as error:
                raise EngineError(f"the forward pass failed: {error}") from error
            for sequence in finished:
                self._done.append((sequence.id, sequence.result(self._processor.decode(sequence.tokens))))

    def generate(self, requests: Several[Request]) -> list[Result]:
        """Run these requests and return their results in the same order. Results of requests that were submitted
        before stay for `stream`."""
        ids: list[int] = []
        mine: dict[int, Result] = {}
        others: list[tuple[int, Result]] = []
        try:
            for request in requests:
                ids.append(self.submit(request))  # noqa: PERF401 - what was queued before an error must be known
            wanted = set(ids)
            stream = self.stream()
            while len(mine) < len(wanted):
                request_id, result = next(stream)
                if request_id in wanted:
                    mine[request_id] = result
                else:
                    others.append((request_id, result))
        finally:
            for request_id in set(ids) - set(mine):
                self.cancel(request_id)
            dropped = set(ids)
            self._done = deque([*others, *((i, r) for i, r in self._done if i not in dropped)])
        return [mine[request_id] for request_id in ids]

    def cancel(self, request_id: int) -> bool:
        """Give up a request and free its pages; its result says `cancelled`. False if it is unknown or done."""
        scheduler = self.loop.scheduler
        waiting = next((s for s in scheduler.waiting if s.id == request_id), None)
        sequence = scheduler.running.get(request_id) or waiting
        if sequence is None:
            return False
        scheduler.release(sequence)
        self._images.pop(request_id, None)
        sequence.finish_reason = "cancelled"
        self._done.append((request_id, sequence.result(self._processor.decode(sequence.tokens))))
        return True

    def close(self) -> None:
        """Free the cache and forget all requests. The model is freed with the last reference to it."""
        self._closed = True
        scheduler = self.loop.scheduler
        for sequence in [*scheduler.waiting, *scheduler.running.values()]:
            scheduler.release(sequence)
        self._images.clear()
        self._done.clear()
        self.loop.cache.keys.clear()
        self.loop.cache.values.clear()

    def __enter__(self) -> LocalEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @torch.inference_mode()
    def _prepare(self, admitted: list[Sequence]) -> None:
        """Encode the images of admitted requests, many at a time, and embed their prompts. A request whose image cannot
        be decoded fails alone."""
        group: list[tuple[Sequence, Any, tuple[int, int, int]]] = []
        patches = 0
        for sequence in admitted:
            image = self._images.pop(sequence.id, None)
            if image is None:
                self._embed(sequence, None)
                continue
            try:
                pixels, grid = self._processor.image_processor.patches(image)
            except (OSError, ValueError, SyntaxError) as error:  # Pillow reads lazily, and raises all of these
                self._give_up(sequence, f"the image cannot be decoded: {error}")
                continue
            if group and patches + pixels.shape[0] > VISION_PATCHES:
                self._encode(group)
                group, patches = [], 0
            group.append((sequence, torch.from_numpy(pixels), grid))
            patches += pixels.shape[0]
        if group:
            self._encode(group)

    def _give_up(self, sequence: Sequence, message: str) -> None:
        self.loop.scheduler.release(sequence)
        self._done.append((sequence.id, Result(text="", finish_reason="error", error=message, tag=sequence.tag)))

    def _encode(self, group: list[tuple[Sequence, Tensor, tuple[int, int, int]]]) -> None:
        try:
            self._encode_and_embed(group)
        except (RuntimeError, MemoryError) as error:
            for sequence, _, _ in group:
                self._give_up(sequence, f"encoding the image failed: {error}")

    def _encode_and_embed(self, group: list[tuple[Sequence, Tensor, tuple[int, int, int]]]) -> None:
        device, dtype = self.loop.device, self.loop.dtype
        pixels = torch.cat([piece for _, piece, _ in group]).to(device=device, dtype=dtype)
        visual = self._model.encode_images(pixels, [grid for _, _, grid in group])
        merge = self._processor.image_processor.merge_size**2
        for (sequence, _, _), piece in zip(
            group, visual.split([p.shape[0] // merge for _, p, _ in group]), strict=True
        ):
            self._embed(sequence, piece)

    def _embed(self, sequence: Sequence, visual: Tensor | None) -> None:
        ids = torch.tensor([sequence.prompt_ids], device=self.loop.device)
        sequence.prompt_embeds = self._model.embed(ids, visual)[0]


def load_engine(
    model: str | Path | None = None,
    *,
    device: str = "auto",
    dtype: str = "auto",
    max_rows: int | None = None,
    cache_bytes: int | None = None,
) -> LocalEngine:
    """Load a checkpoint and build an engine on it.

    Args:
        model: a checkpoint folder; None: the checkpoint that comes with the package.
        device: `auto`, `cpu`, `cuda`, `cuda:1`, `mps`.
        dtype: `auto`, `float32`, `bfloat16` or `float16`.
        max_rows: rows (blocks) of a forward pass at most; None: by device.
        cache_bytes: memory of the key/value cache at most; None: by device.

    Raises:
        CheckpointError: the checkpoint cannot be loaded.
        UsageError: an unknown device or dtype.
    """
    from mineru_diffusion.assets import packaged_checkpoint

    folder = packaged_checkpoint() if model is None else Path(model)
    where = choose_device(device)
    checkpoint = load_checkpoint(folder, device=where, dtype=choose_dtype(dtype, where, folder))
    return LocalEngine(checkpoint, max_rows=max_rows, cache_bytes=cache_bytes)


@torch.inference_mode()
def generate_batch(
    model: MinerUDiffusionForConditionalGeneration,
    input_ids: Tensor,
    pixel_values: Tensor | None,
    image_grid_thw: Any,
    params: DecodingParams,
    profile: CheckpointProfile,
    *,
    block_length: int | None = None,
) -> list[Result]:
    """Decode prompts [N, P] that are already encoded; what `model.generate` calls. Texts are left empty."""
    stops = _stop_ids(model)
    length = block_length or profile.block_length
    visual = None if pixel_values is None else model.encode_images(pixel_values, image_grid_thw)
    embeds = model.embed(input_ids, visual)
    sequences = [
        new_sequence(
            row,
            ids,
            # Copies of one prompt are to give different samples.
            replace(params, seed=params.seed + row),
            profile,
            block_length=length,
            mask_id=int(model.config.mask_token_id),
            default_stops=stops,
        )
        for row, ids in enumerate(input_ids.tolist())
    ]
    loop = DecodingLoop(
        model,
        block_length=length,
        max_rows=default_max_rows(model.language_model.lm_head.weight.device),
        max_pages=sum(sequence.reserved_pages for sequence in sequences) or 1,
    )
    for sequence, embedded in zip(sequences, embeds, strict=True):
        sequence.prompt_embeds = embedded
        loop.scheduler.waiting.append(sequence)
    while loop.scheduler.waiting or loop.scheduler.running:
        loop.scheduler.admit()
        for _ in loop.run_pass():
            pass
    return [sequence.result("") for sequence in sequences]
