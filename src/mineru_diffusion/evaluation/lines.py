"""Held-out lines through the engine, at several thresholds: accuracy against tokens per forward pass."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from PIL import Image

from mineru_diffusion.engine.local import LocalEngine, load_engine
from mineru_diffusion.engine.types import DecodingParams
from mineru_diffusion.errors import UsageError
from mineru_diffusion.evaluation.metrics import character_error_rate, word_error_rate
from mineru_diffusion.evaluation.reading import Reading, read_images
from mineru_diffusion.synthesis.faces import FontSpec
from mineru_diffusion.synthesis.fonts import discover_fonts, select_fonts
from mineru_diffusion.synthesis.lines import LineSample, LineStream

DEFAULT_THRESHOLDS = (0.5, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)
UNSEEN_FONT_SHARE = 0.1


@dataclass(frozen=True)
class LinesScore:
    """One row of the report.

    Attributes:
        threshold: confidence threshold of the decoding.
        cer: character error rate over all lines; `cer_unseen_fonts` over those set in held-out fonts.
        wer: word error rate.
        exact: share of lines without an error.
        tokens_per_pass: generated tokens over forward passes of all lines (each line's own passes counted).
        batch_passes: forward passes of the whole batch.
        confidence: mean token confidence.
        looped: crops that did not end with a stop token.
        seconds: wall time of this row, for orientation only.
    """

    threshold: float
    cer: float
    cer_unseen_fonts: float
    wer: float
    exact: float
    tokens_per_pass: float
    batch_passes: int
    confidence: float
    looped: int
    seconds: float


def held_out_lines(
    count: int,
    *,
    seed: int = 0,
    min_chars: int = 10,
    max_chars: int = 70,
    height: int = 32,
    **wear: float,
) -> list[tuple[LineSample, bool]]:
    """Lines of words that training never shows; a tenth of them in fonts that it never shows either (flag True).

    Args:
        count: how many.
        seed: of the first stream; the unseen fonts' stream has the next one.
        min_chars, max_chars: range of line lengths, characters.
        height: of the images, pixels.
        wear: `degrade` and `worn_share` of `LineStream`.
    """
    unseen = max(1, round(count * UNSEEN_FONT_SHARE))
    known = select_fonts(discover_fonts(), "train")

    def stream(seed: int, fonts: list[FontSpec] | None) -> LineStream:
        return LineStream(
            seed=seed, split="heldout", min_chars=min_chars, max_chars=max_chars, height=height, fonts=fonts, **wear
        )

    streams = ((stream(seed, known), count - unseen, False), (stream(seed + 1, None), unseen, True))
    return [(source.sample(i), flag) for source, number, flag in streams for i in range(number)]


def evaluate_lines(
    model: str | Path | None = None,
    *,
    lines: int = 500,
    thresholds: Sequence[float] = DEFAULT_THRESHOLDS,
    policy: str | None = None,
    seed: int = 0,
    device: str = "auto",
    dtype: str = "auto",
    skip_after_stop: bool | None = None,
    out: Path | None = None,
    engine: LocalEngine | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[LinesScore]:
    """Read held-out lines greedily at each threshold.

    Args:
        model: checkpoint folder; None: the packaged one.
        lines: how many.
        out: where to write the scores and all readings as JSON.
        engine: use this one instead of loading `model`; it stays open.
        progress: called with how many thresholds are done and how many there are.

    Raises:
        UsageError: the checkpoint does not read lines.
    """
    with borrowed_engine(engine, model, device=device, dtype=dtype) as reader:
        profile = reader.profile
        if profile.text_unit != "line":
            raise UsageError(
                "this checkpoint reads whole regions; the line evaluation is for checkpoints that read lines"
            )
        samples = held_out_lines(lines, seed=seed, height=profile.line_height)
        images = [Image.fromarray(sample.image) for sample, _ in samples]
        truths = [sample.text for sample, _ in samples]
        unseen = [i for i, (_, flag) in enumerate(samples) if flag]
        scores, readings = [], {}
        for done, threshold in enumerate(thresholds):
            if progress:
                progress(done, len(thresholds))
            params = DecodingParams(
                policy=policy,  # type: ignore[arg-type]
                threshold=threshold,
                skip_after_stop=skip_after_stop,
            )
            before = reader.counters.passes
            reading = read_images(reader, images, "text", params, multiple=reader.image_factor)
            passes = reader.counters.passes - before
            scores.append(_score(threshold, reading, truths, unseen, passes))
            readings[str(threshold)] = list(reading.texts)
    if out is not None:
        report = {
            "lines": lines,
            "seed": seed,
            "scores": [asdict(score) for score in scores],
            "truths": truths,
            "readings": readings,
        }
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return scores


def _score(
    threshold: float, reading: Reading, truths: Sequence[str], unseen: Sequence[int], batch_passes: int
) -> LinesScore:
    texts = reading.texts
    return LinesScore(
        threshold=threshold,
        cer=character_error_rate(texts, truths),
        cer_unseen_fonts=character_error_rate([texts[i] for i in unseen], [truths[i] for i in unseen]),
        wer=word_error_rate(texts, truths),
        exact=sum(p == t for p, t in zip(texts, truths, strict=True)) / len(truths),
        tokens_per_pass=reading.tokens_per_pass,
        batch_passes=batch_passes,
        confidence=reading.confidence,
        looped=reading.unfinished,
        seconds=reading.seconds,
    )


@contextmanager
def borrowed_engine(
    engine: LocalEngine | None, model: str | Path | None, *, device: str = "auto", dtype: str = "auto"
) -> Iterator[LocalEngine]:
    """The given engine, which stays open, or one of `model`, which is closed at the end.

    Raises:
        CheckpointError: the checkpoint cannot be loaded.
        UsageError: an unknown device or dtype.
    """
    if engine is not None:
        yield engine
        return
    with load_engine(model, device=device, dtype=dtype) as loaded:
        yield loaded
