"""What a checkpoint can do, task by task, against the floors that a task must reach to be offered by default.

In: a checkpoint. Out: a row for every task: declared or not, figure, floor, passed. All on held-out synthetic data
(`held_out`), decoded greedily with the checkpoint's own settings, scored by the metrics of this package.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, get_args

from PIL import Image

from mineru_diffusion.document.layout_grammar import parse_layout
from mineru_diffusion.document.otsl import otsl_to_html
from mineru_diffusion.engine.local import LocalEngine
from mineru_diffusion.engine.types import DecodingParams, Task
from mineru_diffusion.errors import UsageError
from mineru_diffusion.evaluation.formulas import formulas_match, mean_formula_similarity
from mineru_diffusion.evaluation.held_out import SETS, HeldOut, held_out_samples
from mineru_diffusion.evaluation.layout import layout_score
from mineru_diffusion.evaluation.lines import borrowed_engine
from mineru_diffusion.evaluation.metrics import character_error_rate, word_error_rate
from mineru_diffusion.evaluation.reading import read_images
from mineru_diffusion.evaluation.tables import mean_teds
from mineru_diffusion.synthesis.sample import Sample

Figures = dict[str, float]
TASKS: tuple[Task, ...] = get_args(Task)


@dataclass(frozen=True)
class Floor:
    """What a set of samples must reach: `task` to ask, `metric` to look at, `value` as the least or the most."""

    task: Task
    metric: str
    value: float
    at_most: bool = False

    def holds(self, figure: float) -> bool:
        """The figure is good enough."""
        return figure <= self.value if self.at_most else figure >= self.value


FLOORS: dict[HeldOut, Floor] = {
    "text": Floor("text", "CER", 0.02, at_most=True),
    "text-degraded": Floor("text", "CER", 0.05, at_most=True),
    "formula": Floor("formula", "token similarity", 0.90),
    "table": Floor("table", "TEDS", 0.85),
    "layout": Floor("layout", "F1", 0.85),
}


@dataclass(frozen=True)
class TaskScore:
    """One row of the report.

    Attributes:
        name: set of samples.
        declared: the checkpoint offers the task.
        metric: name of the figure that the floor is about.
        figure: its value, or None if it was not measured.
        floor: the least (or for error rates the most) that it must be.
        passed: the floor is reached; None if it was not measured.
        samples: how many were read.
        unseen_fonts: the figure over the samples in unseen fonts, or None without any.
        tokens_per_pass: generated tokens over forward passes.
        unfinished: answers without an end token.
        seconds: wall time, for orientation only.
        more: further figures by name.
    """

    name: str
    declared: bool
    metric: str
    figure: float | None
    floor: float
    passed: bool | None
    samples: int = 0
    unseen_fonts: float | None = None
    tokens_per_pass: float | None = None
    unfinished: int = 0
    seconds: float = 0.0
    more: Figures = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """`passed` or `misses the floor`; `not offered`, alone or beside it, for a task that is not declared."""
        if self.passed is None:
            return "not offered"
        said = "passed" if self.passed else "misses the floor"
        return said if self.declared else f"{said} (not offered)"


def text_figures(answers: Sequence[str], samples: Sequence[Sample]) -> Figures:
    """CER, WER and the share of lines without an error."""
    truths = [sample.target for sample in samples]
    exact = sum(a == t for a, t in zip(answers, truths, strict=True)) / len(truths)
    return {
        "CER": character_error_rate(answers, truths),
        "WER": word_error_rate(answers, truths),
        "exact": exact,
    }


def formula_figures(answers: Sequence[str], samples: Sequence[Sample]) -> Figures:
    """Token similarity and the share of formulas that match."""
    truths = [sample.target for sample in samples]
    exact = sum(map(formulas_match, answers, truths)) / len(truths)
    return {"token similarity": mean_formula_similarity(answers, truths), "exact": exact}


def table_figures(answers: Sequence[str], samples: Sequence[Sample]) -> Figures:
    """TEDS and TEDS-structure of OTSL answers."""
    found = [otsl_to_html(answer) for answer in answers]
    true = [otsl_to_html(sample.target) for sample in samples]
    return {"TEDS": mean_teds(found, true), "TEDS-structure": mean_teds(found, true, structure_only=True)}


def layout_figures(answers: Sequence[str], samples: Sequence[Sample]) -> Figures:
    """F1 at IoU 0.5 with and without kinds, reading-order distance, and coverage."""
    score = layout_score([(parse_layout(a), s.layout) for a, s in zip(answers, samples, strict=True)])
    return {"F1": score.f1, "F1 any kind": score.f1_any_kind, "order": score.order, "page IoU": score.page_iou}


_FIGURES: dict[Task, Callable[[Sequence[str], Sequence[Sample]], Figures]] = {
    "text": text_figures,
    "formula": formula_figures,
    "table": table_figures,
    "layout": layout_figures,
}


def evaluate_tasks(
    model: str | Path | None = None,
    tasks: Sequence[str] = TASKS,
    *,
    samples: int = 200,
    lines: int = 500,
    seed: int = 0,
    force: bool = False,
    device: str = "auto",
    dtype: str = "auto",
    out: Path | None = None,
    engine: LocalEngine | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[TaskScore]:
    """Measure a checkpoint against the floors.

    Args:
        model: checkpoint folder; None: the packaged one.
        tasks: which to measure.
        samples: formulas, tables and pages to read, each.
        lines: lines to read, clean and degraded each.
        seed: of the samples.
        force: also measure tasks that the checkpoint does not declare.
        out: where to write the report, with all answers, as JSON.
        engine: use this one instead of loading `model`; it stays open.
        progress: called with how many sets of samples are done and how many there are.

    Raises:
        UsageError: an unknown task, or no samples asked for.
    """
    wanted = sets_of(tasks)
    if min(samples, lines) < 1:
        raise UsageError(f"{min(samples, lines)} samples are nothing to measure: ask for at least 1")
    scores: list[TaskScore] = []
    details: dict[str, Any] = {}
    with borrowed_engine(engine, model, device=device, dtype=dtype) as reader:
        for done, name in enumerate(wanted):
            if progress:
                progress(done, len(wanted))
            count = lines if FLOORS[name].task == "text" else samples
            score, detail = _evaluate(reader, name, count, seed, force)
            scores.append(score)
            details[name] = detail
    if out is not None:
        rows = [{**asdict(score), "verdict": score.verdict} for score in scores]
        out.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"seed": seed, "tasks": rows, "answers": details}, indent=1, ensure_ascii=False)
        out.write_text(text + "\n", encoding="utf-8")
    return scores


def sets_of(tasks: Sequence[str]) -> list[HeldOut]:
    """The sets of samples that belong to these tasks; text has two, clean and degraded.

    Raises:
        UsageError: an unknown task, or none.
    """
    unknown = sorted(set(tasks) - set(TASKS))
    if unknown or not tasks:
        said = f"unknown task {', '.join(map(repr, unknown))}" if unknown else "no task"
        raise UsageError(f"{said}: use some of {', '.join(TASKS)}")
    return [name for name in SETS if FLOORS[name].task in tasks]


def _evaluate(
    engine: LocalEngine, name: HeldOut, count: int, seed: int, force: bool
) -> tuple[TaskScore, list[dict[str, Any]]]:
    floor = FLOORS[name]
    declared = floor.task in engine.profile.tasks
    if not declared and not force:
        return TaskScore(name, declared, floor.metric, None, floor.value, None), []
    chosen = held_out_samples(name, count, seed=seed, line_height=engine.profile.line_height or 32)
    samples = [sample for sample, _ in chosen]
    images = [Image.fromarray(sample.image) for sample in samples]
    reading = read_images(
        engine, images, floor.task, DecodingParams(), multiple=engine.image_factor, force=not declared
    )
    measure = _FIGURES[floor.task]
    figures = measure(reading.texts, samples)
    unseen = [i for i, (_, flag) in enumerate(chosen) if flag]
    apart = measure([reading.texts[i] for i in unseen], [samples[i] for i in unseen]) if unseen else {}
    figure = figures.pop(floor.metric)
    score = TaskScore(
        name=name,
        declared=declared,
        metric=floor.metric,
        figure=figure,
        floor=floor.value,
        passed=floor.holds(figure),
        samples=len(samples),
        unseen_fonts=apart.get(floor.metric),
        tokens_per_pass=reading.tokens_per_pass,
        unfinished=reading.unfinished,
        seconds=reading.seconds,
        more=figures,
    )
    answers = [
        {"truth": sample.target, "answer": text, "unseen_fonts": flag, "source": sample.source}
        for (sample, flag), text in zip(chosen, reading.texts, strict=True)
    ]
    return score, answers
