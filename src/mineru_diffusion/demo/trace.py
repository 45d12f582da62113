"""What happened while a region was read, as data for the replay. In: engine results. Out: plain data for JSON.

Times are seconds after the requests were handed to the engine, measured, never computed from counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mineru_diffusion.engine.types import Result


@dataclass(frozen=True)
class Run:
    """One reading of some crops.

    Attributes:
        results: one for every crop.
        started: `time.perf_counter()` when they were handed to the engine.
        seconds: until the last one was done, images included.
        passes: forward passes of the decoder, each for all the crops that were not finished.
    """

    results: tuple[Result, ...]
    started: float
    seconds: float
    passes: int

    @property
    def tokens(self) -> int:
        return sum(len(result.tokens) for result in self.results)

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds if self.seconds > 0 else 0.0

    @property
    def tokens_per_pass(self) -> float:
        """Tokens over passes of the whole batch."""
        return self.tokens / max(1, self.passes)

    @property
    def tokens_per_step(self) -> float:
        """Tokens that one crop got from one of its steps: 1 for a reader that writes token by token."""
        return self.tokens / max(1, sum(len(set(result.steps)) for result in self.results))


def sequence_data(result: Result, started: float, spell: Callable[[int], str]) -> dict[str, Any]:
    """One crop's tokens with the confidence, and the step, at which each was decided, and the times of the steps.

    Raises:
        ValueError: the result has no step times, or tokens of a step that it has no time of.
    """
    if max(result.steps, default=0) > len(result.step_times):
        raise ValueError("the engine that gave this result did not record when its steps were")
    return {
        "tokens": [spell(token) for token in result.tokens],
        "confidence": [round(value, 4) for value in result.confidences],
        "step": list(result.steps),
        "time": [round(time - started, 6) for time in result.step_times],
        "reason": result.finish_reason,
    }


def run_data(
    run: Run, lines: Sequence[int], *, name: str, note: str, block: int, spell: Callable[[int], str]
) -> dict[str, Any]:
    """One reader's side of the replay.

    Args:
        run: what it did.
        lines: per crop the number of the text line that it is a piece of, from 0 and never falling.
        name: of the reader.
        note: what it is, in a sentence.
        block: tokens denoised together; 1 for an autoregressive reader.
        spell: a token's text.
    """
    rows: list[list[dict[str, Any]]] = []
    previous: int | None = None
    for line, result in zip(lines, run.results, strict=True):
        if line != previous:
            rows.append([])
        previous = line
        rows[-1].append(sequence_data(result, run.started, spell))
    moments = sorted({time for row in rows for sequence in row for time in sequence["time"]})
    return {
        "name": name,
        "note": note,
        "block": block,
        "seconds": round(run.seconds, 6),
        "tokens": run.tokens,
        "passes": run.passes,
        "tokens_per_second": round(run.tokens_per_second, 1),
        "tokens_per_pass": round(run.tokens_per_pass, 2),
        "tokens_per_step": round(run.tokens_per_step, 2),
        "moments": moments,
        "lines": rows,
    }


def replay_data(runs: Sequence[dict[str, Any]], *, note: str = "") -> dict[str, Any]:
    """Both sides on one clock; the first is compared with the second.

    `speed_up` is the second's time over the first's, for the same pictures.
    """
    first, second = runs
    ratio = second["seconds"] / first["seconds"] if first["seconds"] > 0 else 0.0
    return {"runs": [first, second], "speed_up": round(ratio, 3), "note": note}
