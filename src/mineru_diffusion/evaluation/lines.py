"""Held-out lines through the engine, at several thresholds: accuracy against tokens per forward pass."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from mineru_diffusion.document.crops import fit_line
from mineru_diffusion.engine.local import LocalEngine, load_engine
from mineru_diffusion.engine.types import DecodingParams, Request
from mineru_diffusion.errors import UsageError
from mineru_diffusion.evaluation.metrics import character_error_rate, word_error_rate
from mineru_diffusion.parsing.lines import line_pieces
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
    count: int, *, seed: int = 0, min_chars: int = 10, max_chars: int = 70
) -> list[tuple[LineSample, bool]]:
    """Lines of words that training never shows; a tenth of them in fonts that it never shows either (flag True)."""
    unseen = max(1, round(count * UNSEEN_FONT_SHARE))
    known = select_fonts(discover_fonts(), "train")
    streams = [
        (
            LineStream(seed=seed, split="heldout", min_chars=min_chars, max_chars=max_chars, fonts=known),
            count - unseen,
            False,
        ),
        (LineStream(seed=seed + 1, split="heldout", min_chars=min_chars, max_chars=max_chars), unseen, True),
    ]
    return [(stream.sample(i), flag) for stream, number, flag in streams for i in range(number)]


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
) -> list[LinesScore]:
    """Read held-out lines greedily at each threshold.

    Args:
        model: checkpoint folder; None: the packaged one.
        lines: how many.
        out: where to write the scores and all readings as JSON.
        engine: use this one instead of loading `model`.

    Raises:
        UsageError: the checkpoint does not read lines.
    """
    engine = engine or load_engine(model, device=device, dtype=dtype)
    profile = engine.profile
    if profile.text_unit != "line":
        raise UsageError("this checkpoint reads whole regions; the line evaluation is for checkpoints that read lines")
    samples = held_out_lines(lines, seed=seed)
    multiple = engine.image_factor
    crops: list[Image.Image] = []
    line_of_crop: list[int] = []
    for line, (sample, _) in enumerate(samples):
        # As the parser does it: what is longer than the checkpoint reads at a time is read in pieces.
        for piece in line_pieces(Image.fromarray(np.asarray(sample.image)), profile.line_max_aspect):
            crops.append(fit_line(piece, height=profile.line_height, multiple=multiple))
            line_of_crop.append(line)
    truths = [sample.text for sample, _ in samples]
    unseen = [i for i, (_, flag) in enumerate(samples) if flag]
    scores, readings = [], {}
    for threshold in thresholds:
        params = DecodingParams(
            policy=policy,  # type: ignore[arg-type]
            threshold=threshold,
            skip_after_stop=skip_after_stop,
        )
        before, started = engine.counters.passes, time.perf_counter()
        results = engine.generate([Request(crop, params=params) for crop in crops])
        pieces: list[list[str]] = [[] for _ in samples]
        for line, result in zip(line_of_crop, results, strict=True):
            pieces[line].append(result.text)
        texts = [" ".join(filter(None, parts)) for parts in pieces]
        tokens = sum(len(result.tokens) for result in results)
        passes = sum(result.nfe for result in results)
        confidences = [c for result in results for c in result.confidences]
        scores.append(
            LinesScore(
                threshold=threshold,
                cer=character_error_rate(texts, truths),
                cer_unseen_fonts=character_error_rate([texts[i] for i in unseen], [truths[i] for i in unseen]),
                wer=word_error_rate(texts, truths),
                exact=sum(p == t for p, t in zip(texts, truths, strict=True)) / len(truths),
                tokens_per_pass=tokens / max(1, passes),
                batch_passes=engine.counters.passes - before,
                confidence=sum(confidences) / max(1, len(confidences)),
                looped=sum(result.finish_reason != "stop" for result in results),
                seconds=time.perf_counter() - started,
            )
        )
        readings[str(threshold)] = texts
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
