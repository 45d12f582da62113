"""From a chat request to engine requests and back to one answer.

Usually that is one to one. Where the checkpoint cannot do what a prompt asks, the parser's own means step in, as they
do in `parse`, and the answer's notes say so: a layout comes from the packaged detector, and an image of several lines
is read line by line by a checkpoint that reads lines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from PIL import Image

from mineru_diffusion.document.html_tables import parse_html_table
from mineru_diffusion.document.layout_grammar import format_layout
from mineru_diffusion.document.otsl import table_to_otsl
from mineru_diffusion.document.tables import Cell, Table
from mineru_diffusion.document.types import Region
from mineru_diffusion.engine.types import CheckpointProfile, DecodingParams, FinishReason, Request, Result, Task
from mineru_diffusion.parsing.assemble import finish_region
from mineru_diffusion.parsing.crops import RegionJob, plan_page
from mineru_diffusion.parsing.layout_types import LayoutDetector

#: The prompts that clients of the published model send, whatever a checkpoint lists.
USUAL_TASKS: dict[str, Task] = {
    "Text Recognition:": "text",
    "Table Recognition:": "table",
    "Formula Recognition:": "formula",
    "Layout Detection:": "layout",
}
IMAGE_ANALYSIS = "Image Analysis:"
_KIND: dict[Task, str] = {"text": "text", "table": "table", "formula": "equation", "layout": "text"}
_WORST: tuple[FinishReason, ...] = ("error", "cancelled", "repetition", "length", "stop")
WHOLE = (0.0, 0.0, 1.0, 1.0)


@dataclass
class Reading:
    """What is to be asked of the engine, and what is known already.

    Attributes:
        requests: to run; empty if `answer` says it all.
        job: puts several results together; None: the one result is the answer.
        text: the answer, where no request is needed.
        notes: choices that a careful client should know of.
        limit: tokens of the whole answer at most, however many requests it takes.
    """

    requests: list[Request] = field(default_factory=list)
    job: RegionJob | None = None
    text: str = ""
    notes: list[str] = field(default_factory=list)
    limit: int | None = None

    @property
    def direct(self) -> bool:
        """One request whose result is the answer as it stands, so that it can be streamed."""
        return self.job is None and len(self.requests) == 1

    def answer(self, results: Sequence[Result], decode: Callable[[Sequence[int]], str]) -> Result:
        """The results as one.

        Args:
            results: of `requests`, in their order.
            decode: text of tokens, for a result that the limit cuts.
        """
        if self.direct:
            return results[0]
        if self.job is None:
            return Result(self.text)
        results = _within(results, self.limit, decode)
        self.job.results = list(results)
        parts = finish_region(self.job)
        is_table = self.job.region.kind == "table"
        reasons = {r.finish_reason for r in results}
        reason = next((r for r in _WORST if r in reasons), _WORST[-1])
        self.notes += [w for part in parts for w in part.warnings if w not in self.notes]
        return Result(
            text=_as_table(parts) if is_table else "\n\n".join(part.content for part in parts if part.content),
            tokens=tuple(t for r in results for t in r.tokens),
            confidences=tuple(c for r in results for c in r.confidences),
            steps=tuple(s for r in results for s in r.steps),
            nfe=sum(r.nfe for r in results),
            finish_reason=reason,
            error=next((r.error for r in results if r.error), ""),
            prompt_tokens=sum(r.prompt_tokens for r in results),
        )


def _within(results: Sequence[Result], limit: int | None, decode: Callable[[Sequence[int]], str]) -> Sequence[Result]:
    """The results up to `limit` tokens in all; the one in which they are used up is cut, later ones are empty."""
    if limit is None or sum(len(r.tokens) for r in results) <= limit:
        return results
    kept = []
    for result in results:
        if len(result.tokens) > limit:
            tokens = result.tokens[:limit]
            result = replace(
                result,
                text=decode(tokens),
                tokens=tokens,
                confidences=result.confidences[:limit],
                steps=result.steps[:limit],
                finish_reason="length",
            )
        limit -= len(result.tokens)
        kept.append(result)
    return kept


def _as_table(parts: Sequence[Region]) -> str:
    """OTSL, all that clients of the published model read as a table; a cell a line where no columns were seen."""
    tables = [table for part in parts if (table := parse_html_table(part.content))]
    if tables:
        return "".join(map(table_to_otsl, tables))
    lines = [line for part in parts for line in part.content.splitlines() if line.strip()]
    return table_to_otsl(Table(len(lines), 1, tuple(Cell(i, 0, text=line) for i, line in enumerate(lines))))


def task_of(prompt: str, profile: CheckpointProfile) -> Task | None:
    """The task that a prompt stands for, or None for a prompt of the client's own."""
    wanted = prompt.strip()
    for task, text in profile.prompts.items():
        if text.strip() == wanted and task in ("text", "table", "formula", "layout"):
            return task  # type: ignore[return-value]
    return USUAL_TASKS.get(wanted)


def plan_reading(
    image: Image.Image | None,
    prompt: str,
    system: str | None,
    params: DecodingParams,
    profile: CheckpointProfile,
    detector: LayoutDetector,
    *,
    as_is: bool = False,
) -> Reading:
    """How to answer one chat request. May take a second for a layout: not for an event loop.

    Args:
        image: the user's image, if any.
        prompt: the user's text.
        system: the system turn's text; None: the checkpoint's.
        params: how to decode.
        profile: what the checkpoint can do.
        detector: finds layouts where the checkpoint cannot.
        as_is: one request with the image as it stands, in any case.
    """
    task = task_of(prompt, profile)
    direct = Reading([Request(image, task or "text", prompt=prompt, params=params, system=system)])
    if as_is or image is None:
        return direct
    if task == "layout" and "layout" not in profile.tasks:
        layout = detector.detect([image])[0]
        notes = [f"layout by {detector.name}: the checkpoint has no layout task", *layout.warnings]
        return Reading(text=format_layout(layout.regions), notes=notes)
    if prompt.strip() == IMAGE_ANALYSIS and IMAGE_ANALYSIS not in (p.strip() for p in profile.prompts.values()):
        if profile.text_unit == "line":
            return Reading(notes=["pictures are not described: the checkpoint has no such task"])
        return direct
    lines = profile.text_unit == "line"
    if task in profile.tasks and not (lines and task == "text"):
        return direct
    if task is None and not lines:
        return direct
    notes = []
    if task is None:
        notes.append("the prompt is none that the checkpoint knows; read as text")
    region = Region(_KIND[task or "text"], WHOLE)
    jobs, asked = plan_page(image, [region], profile, params)
    if not jobs:
        return Reading(notes=[*notes, "there is nothing to read: the image is blank"])
    if region.kind == "table":
        notes.append("a line of the table is one cell: the checkpoint knows no columns")
    return Reading([request for _, _, request in asked], jobs[0], notes=notes, limit=params.max_tokens)
