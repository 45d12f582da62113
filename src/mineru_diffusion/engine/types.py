"""What crosses the engine's door: requests in, results out. Torch-free, so that callers need not load it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from PIL import Image

Task = Literal["text", "table", "formula", "layout"]
Policy = Literal["threshold", "prefix", "fixed", "factor", "entropy"]
FinishReason = Literal["stop", "length", "repetition", "cancelled", "error"]


@dataclass(frozen=True)
class DecodingParams:
    """How one request is decoded. `None` means: what the checkpoint says.

    Attributes:
        policy: unmasking policy: `threshold`, `prefix`, `fixed`, `factor` or `entropy`. None: `threshold` if a
            threshold is given, else the checkpoint's own.
        threshold: confidence above which a masked position is decided (`threshold` and `prefix` policies).
        steps: denoising steps a block (`fixed` policy).
        factor: f of the `factor` policy.
        gamma: entropy budget in nats of the `entropy` policy.
        joint: of the `prefix` policy: joint confidence that is enough for a run from the block's left end.
        temperature: 0 is greedy; above 0 samples, with `seed`.
        seed: seed of this request's own random stream.
        max_tokens: tokens to generate at most, honoured exactly.
        stop_ids: token ids that end the request; `None`: the checkpoint's end tokens.
        skip_after_stop: positions behind a decided stop token are no longer decided (the default).
        repetition_guard: end the request when its tail repeats.
    """

    policy: Policy | None = None
    threshold: float | None = None
    steps: int | None = None
    factor: float | None = None
    gamma: float | None = None
    joint: float | None = None
    temperature: float = 0.0
    seed: int = 0
    max_tokens: int | None = None
    stop_ids: tuple[int, ...] | None = None
    skip_after_stop: bool | None = None
    repetition_guard: bool = True


@dataclass(frozen=True)
class Request:
    """One crop to transcribe.

    Attributes:
        image: an RGB image, or None for a text-only prompt.
        task: which of the checkpoint's prompts to use when `prompt` is None.
        prompt: the user's text after the image, overriding the task's prompt.
        params: how to decode.
        tag: the caller's own handle, returned unchanged on the result.
        system: text of the system turn; None: the checkpoint's.
    """

    image: Image.Image | None
    task: Task = "text"
    prompt: str | None = None
    params: DecodingParams = field(default_factory=DecodingParams)
    tag: object = None
    system: str | None = None


@dataclass(frozen=True)
class Result:
    """What one request gave.

    Attributes:
        text: decoded text; structural tokens (layout, OTSL) kept, terminators and masks removed.
        tokens: generated ids up to the stop, which is excluded.
        confidences: per token, the probability with which it was decided.
        steps: per token, the denoising step (from 1, over the whole request) at which it was decided.
        nfe: forward passes in which this request's rows took part (prompt pass included).
        finish_reason: `stop`, `length`, `repetition`, `cancelled` or `error`.
        error: the message when `finish_reason` is `error`.
        prompt_tokens: tokens of the prompt, visual ones included.
        step_times: per denoising step, `time.perf_counter()` at its end: one clock for all requests of this process.
            Empty where the engine is another process; left out when results are compared.
    """

    text: str
    tokens: tuple[int, ...] = ()
    confidences: tuple[float, ...] = ()
    steps: tuple[int, ...] = ()
    nfe: int = 0
    finish_reason: FinishReason = "stop"
    error: str = ""
    tag: object = None
    prompt_tokens: int = 0
    step_times: tuple[float, ...] = field(default=(), compare=False)

    @property
    def confidence(self) -> float | None:
        """Mean token confidence, or None for an empty result."""
        return sum(self.confidences) / len(self.confidences) if self.confidences else None


@dataclass(frozen=True)
class CheckpointProfile:
    """What a checkpoint says about itself (section `mineru_diffusion` of generation_config.json).

    The defaults fit the published checkpoint, which has no such section.

    Attributes:
        block_length: tokens denoised together.
        threshold: default confidence threshold.
        policy: default unmasking policy.
        tasks: what the checkpoint can do.
        text_unit: `region` if it reads whole paragraphs, `line` if it reads single lines.
        line_height: height in pixels that a line crop is scaled to (`text_unit` = `line` only), else 0.
        line_max_aspect: lines wider than this many times their height are read in pieces, cut at word gaps.
        image_factor: side in pixels of the square that becomes one visual token, to whose multiples line crops are
            padded; 0: not known, `line_height` serves. The local engine fills it in.
        layout_image_size: width and height in pixels that a page is squashed to for layout.
        prompts: user text by task.
        system_prompt: text of the system turn.
        max_tokens: default generation limit.
        objective: `diffusion` or `autoregressive`.
    """

    block_length: int = 32
    threshold: float = 0.95
    policy: Policy = "threshold"
    tasks: tuple[str, ...] = ("text", "table", "formula", "layout")
    text_unit: Literal["region", "line"] = "region"
    line_height: int = 0
    line_max_aspect: float = 25.0
    image_factor: int = 0
    layout_image_size: tuple[int, int] = (1036, 1036)
    prompts: dict[str, str] = field(
        default_factory=lambda: {
            "text": "\nText Recognition:",
            "table": "\nTable Recognition:",
            "formula": "\nFormula Recognition:",
            "layout": "\nLayout Detection:",
        }
    )
    system_prompt: str = "You are a helpful assistant."
    max_tokens: int = 4096
    objective: Literal["diffusion", "autoregressive"] = "diffusion"


@runtime_checkable
class Engine(Protocol):
    """Anything that turns requests into results: the local row engine, or a client of a remote server."""

    @property
    def profile(self) -> CheckpointProfile:
        """What the checkpoint behind this engine can do."""
        ...

    def submit(self, request: Request) -> int:
        """Queue a request; returns its id. Work happens in `stream` or `generate`."""
        ...

    def stream(self) -> Iterator[tuple[int, Result]]:
        """Run until nothing is queued, yielding `(id, result)` as each request finishes (any order)."""
        ...

    def generate(self, requests: Sequence[Request]) -> list[Result]:
        """Run these requests and return their results in the same order."""
        ...

    def cancel(self, request_id: int) -> bool:
        """Give up a request and free its cache; False if it was not running or queued."""
        ...

    def close(self) -> None:
        """Free the cache and forget all requests."""
        ...
