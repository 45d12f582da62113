"""What the engine did, in numbers that a user can read. Torch-free."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from time import perf_counter


@dataclass
class EngineStats:
    """Counters since the engine was made.

    Attributes:
        passes: forward passes of the decoder; `graphed` of them were replayed from CUDA graphs.
        sequences: sequences that took part, summed over passes.
        rows: blocks computed, summed over passes.
        positions: positions computed, summed over passes; `prompt_positions` of them were prompt,
            `commit_positions` finished blocks, the rest were being denoised.
        asked: positions at which logits were computed.
        decided: tokens that were decided.
        tokens: tokens of finished requests.
        requests: finished requests.
        shared: requests answered with another one's result (same pixels, prompt and settings).
        preempted: times that a request gave its pages back and started over.
        images: images encoded, `images_beside` of them beside a pass; `patches` their patches.
        max_rows: sequences that may run at a time.
        page_tokens, pages, peak_pages, page_bytes: size of a cache page, pages that there may be, most pages that were
            in use, bytes of one.
        seconds: time by activity: `prepare` (images to patches), `vision`, `plan`, `forward`, `head`, `decide`.
    """

    passes: int = 0
    graphed: int = 0
    sequences: int = 0
    rows: int = 0
    positions: int = 0
    prompt_positions: int = 0
    commit_positions: int = 0
    asked: int = 0
    decided: int = 0
    tokens: int = 0
    requests: int = 0
    shared: int = 0
    preempted: int = 0
    images: int = 0
    images_beside: int = 0
    patches: int = 0
    max_rows: int = 0
    page_tokens: int = 0
    pages: int = 0
    peak_pages: int = 0
    page_bytes: int = 0
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def rows_per_pass(self) -> float:
        return self.rows / max(1, self.passes)

    @property
    def occupancy(self) -> float:
        """Sequences of a pass over those that may run."""
        return self.sequences / max(1, self.passes * self.max_rows)

    @property
    def tokens_per_pass(self) -> float:
        """Tokens decided by a pass, over the whole batch."""
        return self.decided / max(1, self.passes)

    @property
    def tokens_per_step(self) -> float:
        """Tokens decided by one sequence's share of a pass: what a single crop sees."""
        return self.decided / max(1, self.sequences)

    @property
    def prefill_seconds(self) -> float:
        """The share of the forward time that went into prompts, by positions."""
        return self.seconds.get("forward", 0.0) * self.prompt_positions / max(1, self.positions)

    @property
    def denoise_seconds(self) -> float:
        """The rest of the forward time."""
        return self.seconds.get("forward", 0.0) - self.prefill_seconds

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Add the time that the block takes to `seconds[what]`."""
        started = perf_counter()
        try:
            yield
        finally:
            self.seconds[what] = self.seconds.get(what, 0.0) + perf_counter() - started

    def since(self, earlier: EngineStats) -> EngineStats:
        """What happened after `earlier`; sizes and the peak stay."""
        kept = {"max_rows", "page_tokens", "pages", "peak_pages", "page_bytes"}
        counts = {
            f.name: getattr(self, f.name) - (0 if f.name in kept else getattr(earlier, f.name))
            for f in fields(self)
            if f.name != "seconds"
        }
        seconds = {what: total - earlier.seconds.get(what, 0.0) for what, total in self.seconds.items()}
        return EngineStats(**counts, seconds=seconds)

    def lines(self) -> list[str]:
        """A few lines for people."""
        spent = {**self.seconds, "prefill": self.prefill_seconds, "denoise": self.denoise_seconds}
        order = ("prepare", "vision", "prefill", "denoise", "head", "decide", "plan")
        times = ", ".join(f"{what} {spent[what]:.2f}" for what in order if what in spent)
        computed = max(1, self.positions)
        denoised = self.positions - self.prompt_positions - self.commit_positions
        graphed = f" ({self.graphed} from graphs)" if self.graphed else ""
        beside = f" ({self.images_beside} beside passes)" if self.images_beside else ""
        used = self.peak_pages * self.page_bytes / 2**20
        return [
            f"{self.requests} requests ({self.shared} shared another's result), {self.images} images{beside}, "
            f"{self.tokens} tokens, {self.passes} passes{graphed}",
            f"{self.tokens_per_pass:.1f} tokens a pass, {self.tokens_per_step:.2f} for a single crop; "
            f"{self.rows_per_pass:.1f} rows a pass, {100 * self.occupancy:.0f} % of {self.max_rows} sequences",
            f"positions: {100 * self.prompt_positions / computed:.0f} % prompt, "
            f"{100 * self.commit_positions / computed:.0f} % commit, {100 * denoised / computed:.0f} % denoised; "
            f"logits at {self.asked}",
            f"cache: at most {self.peak_pages} of {self.pages} pages ({used:.1f} MiB), {self.preempted} preemptions",
            f"seconds: {times}",
        ]
