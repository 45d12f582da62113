"""Reading again at another threshold, and how near that comes to a reference."""

from __future__ import annotations

from collections.abc import Sequence

from mineru_diffusion.demo.accuracy import character_accuracy
from mineru_diffusion.demo.plans import RegionPlan
from mineru_diffusion.demo.readers import ONE_BY_ONE, Readers
from mineru_diffusion.demo.sessions import Session, Trial
from mineru_diffusion.engine.types import DecodingParams

TEXT_LAYER = "the document's own text layer"
SLOWEST = "the same checkpoint's reading at one token a step"


def reference_text(session: Session, name: str, plans: Sequence[RegionPlan], readers: Readers) -> tuple[str, str]:
    """What a reading of these regions is held against, and what that is in words.

    The text layer where the document has one for them; else what the checkpoint itself reads when it takes its time.
    """
    truth = "\n".join(plan.truth for plan in plans)
    if truth.strip():
        return truth, TEXT_LAYER
    if name not in session.references:
        _, texts = readers.reread(plans, ONE_BY_ONE)
        session.references[name] = "\n".join(texts)
    return session.references[name], SLOWEST


def try_threshold(
    session: Session, name: str, plans: Sequence[RegionPlan], readers: Readers, threshold: float, reference: str
) -> tuple[Trial, str]:
    """Decode regions at a threshold; returns the trial, which the session keeps under `name`, and the text."""
    run, texts = readers.reread(plans, DecodingParams(policy="threshold", threshold=threshold))
    text = "\n".join(texts)
    trial = Trial(
        threshold, run.passes, run.tokens, run.seconds, run.tokens_per_step, character_accuracy(text, reference)
    )
    session.trials.setdefault(name, {})[threshold] = trial
    return trial, text
