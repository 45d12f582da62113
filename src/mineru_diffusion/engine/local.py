"""The local engine: requests on this machine's model."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Several
from dataclasses import replace
from itertools import count
from pathlib import Path

from mineru_diffusion.engine.cache import PagedCache
from mineru_diffusion.engine.devices import (
    choose_device,
    choose_dtype,
    choose_threads,
    default_cache_bytes,
    default_max_rows,
    default_overlap,
)
from mineru_diffusion.engine.images import ImageQueue, is_blank
from mineru_diffusion.engine.loop import DecodingLoop, page_tokens
from mineru_diffusion.engine.quantize import quantize_model
from mineru_diffusion.engine.requests import block_length_of, new_sequence, stop_ids_of
from mineru_diffusion.engine.sequence import Sequence
from mineru_diffusion.engine.sharing import SharedRequests, request_key
from mineru_diffusion.engine.stats import EngineStats
from mineru_diffusion.engine.types import CheckpointProfile, Request, Result
from mineru_diffusion.errors import EngineError, RequestTooLarge, UsageError
from mineru_diffusion.model.checkpoint import Checkpoint, load_checkpoint


class LocalEngine:
    """The row engine of docs/design.md, section 5. Not thread-safe: one thread drives it.

    Args:
        checkpoint: model, processor and profile.
        max_rows: sequences that run at a time, and blocks of a forward pass; None: by device.
        cache_bytes: memory of the key/value cache at most; None: by device.
        block_length: another block length than the checkpoint's own.
        kernel, graphs: as for `DecodingLoop`.
        overlap: encode images of waiting requests beside forward passes; None: on CUDA, if torch is 2.10 or later.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        max_rows: int | None = None,
        cache_bytes: int | None = None,
        block_length: int | None = None,
        kernel: str = "auto",
        graphs: bool | None = None,
        overlap: bool | None = None,
    ) -> None:
        self._processor = checkpoint.processor
        self._profile = replace(checkpoint.profile, image_factor=self._processor.image_processor.factor)
        model = checkpoint.model
        text = model.config.text_config
        block_length = block_length_of(self._profile, block_length)
        weight = model.language_model.lm_head.weight
        self._page_bytes = PagedCache.page_bytes(
            text.num_hidden_layers, text.num_key_value_heads, text.head_dim, page_tokens(block_length), weight.dtype
        )
        self.loop = DecodingLoop(
            model,
            block_length=block_length,
            max_rows=max_rows or default_max_rows(weight.device),
            max_pages=max(1, (cache_bytes or default_cache_bytes(weight.device)) // self._page_bytes),
            kernel=kernel,
            graphs=graphs,
        )
        self._images = ImageQueue(
            model,
            self._processor,
            self.loop.stats,
            overlap=default_overlap(weight.device) if overlap is None else overlap,
        )
        vocabulary = self._processor.tokenizer.get_vocab()
        ends = {vocabulary[token] for token in ("<|im_end|>", "<|endoftext|>") if token in vocabulary}
        # Exported checkpoints list all of these; the published one may list one.
        self._stops = stop_ids_of(model) | ends
        self._ids = count()
        self._shared = SharedRequests()
        self._done: deque[tuple[int, Result]] = deque()
        self._closed = False
        self.on_pass: Callable[[], None] | None = None
        """Called by `stream` after every pass, in the thread that drives it; may submit, cancel and call `partial`."""

    @property
    def profile(self) -> CheckpointProfile:
        return self._profile

    @property
    def image_factor(self) -> int:
        """Side in pixels of the square that becomes one visual token."""
        return self._processor.image_processor.factor

    @property
    def counters(self) -> EngineStats:
        """What the loop did so far, counting on."""
        return self.loop.stats

    def stats(self) -> EngineStats:
        """What the engine did so far, as a copy."""
        # Copied as a whole, since a thread may be adding to it.
        return replace(self.loop.stats, seconds=dict(self.loop.stats.seconds))

    @property
    def max_rows(self) -> int:
        """Requests that run at a time."""
        return self.loop.scheduler.max_rows

    @property
    def cache_pages(self) -> tuple[int, int]:
        """Cache pages that are handed out, and pages in all."""
        return self.loop.cache.used, self.loop.cache.max_pages

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
        # A reader of lines was never shown blank paper, and would invent a line for it.
        lines = self._profile.text_unit == "line" and request.prompt is None
        if lines and request.image is not None and is_blank(request.image):
            self._done.append((request_id, Result(text="", finish_reason="stop", tag=request.tag)))
            return request_id
        images = self._processor.image_processor
        try:
            counts = [] if request.image is None else [images.tokens(request.image)]
            system = request.system or self._profile.system_prompt
            text = self._processor.prompt(prompt, images=len(counts), system=system)
            prompt_ids = self._processor.expand(text, counts)
        except ValueError as error:
            self._fail(request_id, request.tag, str(error))
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
            pages, room = self.loop.cache.pages_for(sequence.longest), self.loop.cache.max_pages
            problem = RequestTooLarge(
                f"the request needs {pages} cache pages ({pages * self._page_bytes / 2**20:.0f} MiB: {len(prompt_ids)} "
                f"prompt and up to {sequence.max_tokens} generated tokens), the cache has {room}; "
                "lower max_tokens or the image size, or enlarge the cache"
            )
            self._fail(request_id, request.tag, str(problem))
            return request_id
        key = request_key(request.image, prompt_ids, request.params)
        if self._shared.join(key, request_id, request.tag):
            self.loop.stats.shared += 1
            return request_id
        self._shared.open(key, request_id, request.tag)
        if request.image is not None:
            self._images.add(request_id, request.image)
        self.loop.scheduler.waiting.append(sequence)
        return request_id

    def _fail(self, request_id: int, tag: object, message: str) -> None:
        self._done.append((request_id, Result(text="", finish_reason="error", error=message, tag=tag)))

    def stream(self) -> Iterator[tuple[int, Result]]:
        """Run until nothing is queued, yielding results in the order in which they finish. Requests may be submitted
        and cancelled between two results."""
        scheduler = self.loop.scheduler
        while True:
            while self._done:
                yield self._done.popleft()
            scheduler.admit()
            self._images.embed(scheduler.running.values())
            for sequence in list(scheduler.running.values()):
                if sequence.problem is not None:
                    self.loop.release(sequence)
                    for request_id, tag in self._shared.close(sequence.id):
                        self._fail(request_id, tag, sequence.problem)
            if not scheduler.running:
                if not scheduler.waiting and not self._done:
                    return
                continue
            try:
                self._images.begin(scheduler.waiting)
                finished = list(self.loop.run_pass())
            except (RuntimeError, MemoryError) as error:
                raise EngineError(f"the forward pass failed: {error}") from error
            for sequence in finished:
                result = sequence.result(self._processor.decode(sequence.tokens))
                for request_id, tag in self._shared.close(sequence.id):
                    self._done.append((request_id, replace(result, tag=tag)))
            if self.on_pass is not None:
                self.on_pass()

    def _sequence(self, request_id: int) -> Sequence | None:
        """What is decoded for a queued or running request."""
        sequence_id = self._shared.sequence_of(request_id)
        if sequence_id is None:
            return None
        scheduler = self.loop.scheduler
        return scheduler.running.get(sequence_id) or next((s for s in scheduler.waiting if s.id == sequence_id), None)

    def partial(self, request_id: int) -> tuple[int, ...] | None:
        """Tokens of the blocks that a queued or running request has finished; None if it is neither."""
        sequence = self._sequence(request_id)
        return None if sequence is None else tuple(sequence.tokens)

    def decode(self, tokens: Several[int]) -> str:
        """Text of tokens, as in `Result.text`."""
        return self._processor.decode(tokens)

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
        sequence = self._sequence(request_id)
        if sequence is None:
            return False
        tag, alone = self._shared.leave(request_id)
        if alone:
            self.loop.release(sequence)
            self._images.drop(sequence.id)
        text = self._processor.decode(sequence.tokens)
        self._done.append((request_id, replace(sequence.result(text, "cancelled"), tag=tag)))
        return True

    def close(self) -> None:
        """Free the cache and forget all requests. The model is freed with the last reference to it."""
        self._closed = True
        scheduler = self.loop.scheduler
        for sequence in [*scheduler.waiting, *scheduler.running.values()]:
            self.loop.release(sequence)
        self._shared.clear()
        self._images.close()
        self._done.clear()
        self.loop.cache.clear()

    def __enter__(self) -> LocalEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def load_engine(
    model: str | Path | None = None,
    *,
    device: str = "auto",
    dtype: str = "auto",
    max_rows: int | None = None,
    cache_bytes: int | None = None,
    quantize: str | None = None,
    kernel: str = "auto",
    graphs: bool | None = None,
    overlap: bool | None = None,
) -> LocalEngine:
    """Load a checkpoint and build an engine on it.

    Args:
        model: a checkpoint folder; None: the checkpoint that comes with the package.
        device: `auto`, `cpu`, `cuda`, `cuda:1`, `mps`.
        dtype: `auto`, `float32`, `bfloat16` or `float16`.
        max_rows: sequences that run at a time at most; None: by device.
        cache_bytes: memory of the key/value cache at most; None: by device.
        quantize: `int8`: the decoder's matrices in 8 bits; None: as `dtype` says.
        kernel: what attends over the cache: `sdpa`, `flex`, or `auto`: flex on CUDA where it works.
        graphs: replay passes from CUDA graphs; None: on CUDA.
        overlap: encode images of waiting requests beside forward passes; None: on CUDA, if torch is 2.10 or later.

    Raises:
        CheckpointError: the checkpoint cannot be loaded.
        UsageError: an unknown device, dtype, quantization or kernel.
    """
    from mineru_diffusion.assets import packaged_checkpoint

    folder = packaged_checkpoint() if model is None else Path(model)
    where = choose_device(device)
    if where.type == "cpu":
        choose_threads()
    checkpoint = load_checkpoint(folder, device=where, dtype=choose_dtype(dtype, where, folder))
    if quantize is not None:
        quantize_model(checkpoint.model, quantize)
    return LocalEngine(
        checkpoint, max_rows=max_rows, cache_bytes=cache_bytes, kernel=kernel, graphs=graphs, overlap=overlap
    )
