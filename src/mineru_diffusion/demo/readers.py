"""The two readers of the demo and the lock that lets one visitor at a time use them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import Any

from PIL import Image

from mineru_diffusion.demo.plans import RegionPlan, plan_regions
from mineru_diffusion.demo.trace import Run, replay_data, run_data
from mineru_diffusion.document.types import Document, Page
from mineru_diffusion.engine.local import LocalEngine
from mineru_diffusion.engine.types import DecodingParams, Request
from mineru_diffusion.errors import UsageError
from mineru_diffusion.parsing.api import parse_many
from mineru_diffusion.parsing.layout import LayoutDetector, choose_detector
from mineru_diffusion.parsing.options import ParseOptions
from mineru_diffusion.parsing.pipeline import PageHook
from mineru_diffusion.parsing.progress import Progress

ONE_BY_ONE = DecodingParams(policy="threshold", threshold=1.0)
"""No confidence is above 1, so every step decides one token: the most confident one."""

STAND_IN = (
    "There is no autoregressive checkpoint here, so beside it runs the same diffusion checkpoint, held to one token "
    "a step. That shows what deciding many tokens at once gains; it is not an autoregressive model."
)


@dataclass(frozen=True)
class Side:
    """One side of a comparison: a reader, how it decodes, and how it is called on the page."""

    engine: LocalEngine
    params: DecodingParams
    name: str
    note: str

    def read(self, requests: Sequence[Request]) -> Run:
        """Read these crops together, on the clock."""
        asked = [replace(request, params=self.params) for request in requests]
        before = self.engine.counters.passes
        started = perf_counter()
        results = self.engine.generate(asked)
        seconds = perf_counter() - started
        return Run(tuple(results), started, seconds, self.engine.counters.passes - before)


@dataclass(frozen=True)
class Race:
    """Two sides that read the same region, and the best of their rounds."""

    sides: tuple[Side, Side]
    runs: tuple[Run, Run]
    rounds: int


class Readers:
    """The diffusion checkpoint and what it is compared with.

    Args:
        engine: of a diffusion checkpoint.
        twin: of an autoregressive one; None: the first one, held to one token a step, stands in and says so.
        detector: finds regions; None: as the checkpoint's tasks say.

    Raises:
        UsageError: one of the checkpoints has the other's objective.
    """

    def __init__(
        self, engine: LocalEngine, twin: LocalEngine | None = None, detector: LayoutDetector | None = None
    ) -> None:
        if engine.profile.objective != "diffusion":
            raise UsageError("the demo needs a diffusion checkpoint as --model; pass an autoregressive one as --twin")
        if twin is not None and twin.profile.objective != "autoregressive":
            raise UsageError("--twin names a checkpoint that was not trained with objective: autoregressive")
        self.engine, self.twin = engine, twin
        self._detector = detector or choose_detector(engine)
        self._lock = threading.Lock()

    @property
    def threshold(self) -> float:
        """The checkpoint's own."""
        return self.engine.profile.threshold

    def read_page(
        self, path: Path, options: ParseOptions, *, progress: Progress | None = None, on_page: PageHook | None = None
    ) -> Document:
        """Parse the page that `options.pages` names.

        Raises:
            MinerUDiffusionError: the file or its page cannot be read.
        """
        with self._lock:
            (outcome,) = parse_many(
                [path],
                options=options,
                engine=self.engine,
                detector=self._detector,
                progress=progress,
                on_page=on_page,
                expand=False,
            )
        if outcome.error is not None:
            raise outcome.error
        assert outcome.document is not None
        return outcome.document

    def sides(self, threshold: float) -> tuple[Side, Side]:
        """Diffusion at this threshold, and its opponent."""
        block = self.engine.profile.block_length
        first = Side(
            self.engine,
            DecodingParams(policy="threshold", threshold=threshold),
            "Block diffusion",
            f"Blocks of {block} tokens; a step keeps every token it is more than {threshold:.0%} sure of.",
        )
        if self.twin is None:
            note = "The same checkpoint, held to one token a step."
            return first, Side(self.engine, ONE_BY_ONE, "One token a step", note)
        note = "The same network with a causal mask: every pass writes the next token."
        return first, Side(self.twin, DecodingParams(), "Autoregressive", note)

    def race(self, plan: RegionPlan, threshold: float, rounds: int, *, budget: float = 6.0) -> Race:
        """Both read the region's crops, in turns; the better round of each counts.

        Args:
            plan: the region.
            threshold: of the diffusion checkpoint.
            rounds: turns of each at most.
            budget: seconds after which no further round begins.
        """
        first, second = self.sides(threshold)
        theirs = plan.requests if self.twin is None else plan.twin_requests
        mine: list[Run] = []
        others: list[Run] = []
        with self._lock:
            started = perf_counter()
            while not mine or (len(mine) < rounds and perf_counter() - started < budget):
                mine.append(first.read(plan.requests))
                others.append(second.read(theirs))
        fastest = [min(runs, key=lambda run: run.seconds) for runs in (mine, others)]
        return Race((first, second), (fastest[0], fastest[1]), len(mine))

    def replay(self, plan: RegionPlan, race: Race) -> dict[str, Any]:
        """A comparison as the page plays it."""
        data = []
        lines = (plan.lines, plan.lines if self.twin is None else plan.twin_lines)
        for side, run, rows in zip(race.sides, race.runs, lines, strict=True):
            block = 1 if side.engine.profile.objective == "autoregressive" else side.engine.profile.block_length
            data.append(run_data(run, rows, name=side.name, note=side.note, block=block, spell=_speller(side.engine)))
        turns = "one round each" if race.rounds == 1 else f"the best of {race.rounds} rounds each"
        note = f"Measured on this machine, all lines of the region together, {turns}."
        return replay_data(data, note=note if self.twin is not None else f"{note} {STAND_IN}")

    def reread(self, plans: Sequence[RegionPlan], params: DecodingParams) -> tuple[Run, list[str]]:
        """Read regions once more, together; returns what it took, and each one's text."""
        side = Side(self.engine, params, "", "")
        with self._lock:
            run = side.read([request for plan in plans for request in plan.requests])
        texts, at = [], 0
        for plan in plans:
            texts.append(plan.text(run.results[at : at + len(plan.requests)]))
            at += len(plan.requests)
        return run, texts

    def plan(self, image: Image.Image, page: Page) -> list[RegionPlan]:
        """What to ask the readers about the regions of a page; see `plans.plan_regions`."""
        return plan_regions(image, page, self.engine.profile, None if self.twin is None else self.twin.profile)

    def close(self) -> None:
        """Free both."""
        with self._lock:
            self.engine.close()
            if self.twin is not None:
                self.twin.close()


def _speller(engine: LocalEngine) -> Callable[[int], str]:
    """A token's text, each looked up once."""
    return cache(lambda token: engine.decode([token]))
