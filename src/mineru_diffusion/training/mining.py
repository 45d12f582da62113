"""Stage 2's data: samples that the network is unsure of, found by decoding each several times and comparing the
readings (MinerU-Diffusion, arXiv 2603.22458: mining by inference consistency).

In: shards and a checkpoint. Out: shards of the least consistent samples (`kept/`), and every sample's scores
(`scores.jsonl`). Samples that the checkpoint cannot read (another task, several lines for a reader of lines) are left
out: what it makes of them says nothing. A run that was stopped goes on where its scores end.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Literal

from mineru_diffusion.engine import Engine
from mineru_diffusion.engine.types import DecodingParams, Request
from mineru_diffusion.errors import UsageError
from mineru_diffusion.synthesis.sample import Sample
from mineru_diffusion.synthesis.shards import count_rows, read_shards, write_shards
from mineru_diffusion.training.scoring import consistency, similarity
from mineru_diffusion.training.shards import prepare_image, shard_files, suits

SCORES = "scores.jsonl"
KEPT = "kept"
LOWEST_THRESHOLD = 0.4


@dataclass(frozen=True)
class Score:
    """One sample's.

    Attributes:
        index: its number in the shards.
        task: its task.
        consistency: mean similarity between its readings; 1: all alike.
        accuracy: mean similarity of the readings with the truth.
    """

    index: int
    task: str
    consistency: float
    accuracy: float


@dataclass(frozen=True)
class MiningReport:
    """How many samples were scored and kept; by task the mean consistency of all and of those kept, the share of
    samples whose readings were all alike, and how many samples were left out because the checkpoint cannot read them.
    """

    scored: int
    kept: int
    consistency: dict[str, float]
    kept_consistency: dict[str, float]
    unanimous: dict[str, float]
    left_out: dict[str, int]


def count_samples(sources: Sequence[str | Path]) -> int:
    """How many samples shards, or folders of them, hold.

    Raises:
        UsageError: there are no shards, or one is damaged.
    """
    return sum(count_rows(file) for source in sources for file in shard_files(source))


def variants(draws: int, by: Literal["temperature", "thresholds"], temperature: float) -> list[DecodingParams]:
    """The `draws` ways in which each sample is decoded: by random seeds, or by confidence thresholds from cautious to
    rash.

    Raises:
        UsageError: fewer than two draws, or a temperature of 0, which gives the same reading every time.
    """
    if draws < 2:
        raise UsageError(f"consistency needs at least two readings of a sample, not {draws}")
    if by == "thresholds":
        step = (1.0 - LOWEST_THRESHOLD) / (draws - 1)
        return [DecodingParams(threshold=1.0 - step * i) for i in range(draws)]
    if temperature <= 0:
        raise UsageError("mining by temperature needs a temperature above 0; at 0 all readings are the same")
    return [DecodingParams(temperature=temperature, seed=seed) for seed in range(draws)]


def score_samples(
    engine: Engine, samples: Sequence[tuple[int, Sample]], params: Sequence[DecodingParams], *, factor: int
) -> list[Score]:
    """Decode each sample in each way, all together, and compare.

    Args:
        samples: with their numbers in the shards.
        factor: pixels that a visual token is wide.
    """
    profile = engine.profile
    prompts = type(profile)().prompts | profile.prompts
    requests = []
    for _, sample in samples:
        image = prepare_image(sample, profile, factor)
        # A reading that runs on is cut where it is certain to be wrong.
        limit = min(profile.max_tokens, 2 * len(sample.target) + 16)
        requests += [
            Request(image, task=sample.task, prompt=prompts[sample.task], params=replace(p, max_tokens=limit))
            for p in params
        ]
    results = iter(engine.generate(requests))
    scores = []
    for number, sample in samples:
        readings = [result.text for result in islice(results, len(params))]
        right = sum(similarity(sample.task, reading, sample.target) for reading in readings) / len(readings)
        scores.append(Score(number, sample.task, consistency(sample.task, readings), right))
    return scores


def choose(scores: Sequence[Score], keep: float) -> list[int]:
    """Numbers of the least consistent samples: the share `keep` of each task, in rising order."""
    by_task: dict[str, list[Score]] = defaultdict(list)
    for score in scores:
        by_task[score.task].append(score)
    kept: list[int] = []
    for members in by_task.values():
        members.sort(key=lambda s: (s.consistency, s.index))
        kept += [score.index for score in members[: round(keep * len(members))]]
    return sorted(kept)


def mine(
    sources: Sequence[str | Path],
    engine: Engine,
    out: Path,
    *,
    factor: int,
    model: str = "",
    draws: int = 4,
    keep: float = 0.3,
    by: Literal["temperature", "thresholds"] = "temperature",
    temperature: float = 0.7,
    batch: int = 64,
    limit: int | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> MiningReport:
    """Score the samples of shards and write the uncertain ones.

    Args:
        sources: shards, or folders of them.
        engine: on the checkpoint that is to be trained on.
        out: folder for `scores.jsonl`, and for the shards of the kept samples, which have their `consistency` and
            `accuracy` in their source.
        factor: pixels that a visual token is wide (`LocalEngine.image_factor`).
        model: names the checkpoint, so that a run is not gone on with on another.
        draws: readings a sample.
        keep: share of each task's samples that is kept.
        by: what makes the readings differ.
        limit: look at this many samples at most.
        progress: called with the number of samples that are done.

    Raises:
        UsageError: an argument is out of range, `out` holds shards already, or there are no samples that the checkpoint
            can read.
    """
    if not 0 < keep <= 1:
        raise UsageError(f"the share to keep must be above 0 and at most 1, not {keep}")
    params = variants(draws, by, temperature)
    files = [file for source in sources for file in shard_files(source)]
    out.mkdir(parents=True, exist_ok=True)
    if (out / KEPT).is_dir():
        raise UsageError(f"{out} holds mined shards already; choose another folder, or delete it to mine again")
    settings = {
        "files": [str(f) for f in files],
        "model": model,
        "draws": draws,
        "by": by,
        "temperature": temperature,
    }
    scores = _read_scores(out / SCORES, settings)
    with (out / SCORES).open("a", encoding="utf-8") as log:
        if not log.tell():
            log.write(json.dumps(settings) + "\n")
        done = scores[-1].index + 1 if scores else 0
        readable = (
            (number, sample)
            for number, sample in enumerate(islice(read_shards(files), done, limit), done)
            if _can_read(engine, sample)
        )
        while group := list(islice(readable, batch)):
            found = score_samples(engine, group, params, factor=factor)
            log.writelines(json.dumps(asdict(score)) + "\n" for score in found)
            log.flush()
            scores += found
            progress(found[-1].index + 1)
    total = min(count_samples(files), limit or sys.maxsize)
    progress(total)
    if not scores:
        raise UsageError(
            f"no samples that the checkpoint can read in {', '.join(map(str, sources))}; it reads "
            f"{', '.join(engine.profile.tasks)}" + (" line by line" if engine.profile.text_unit == "line" else "")
        )
    by_number = {score.index: score for score in scores}
    kept = {number: by_number[number] for number in choose(scores, keep)}
    draft = out / f"{KEPT}.new"
    shutil.rmtree(draft, ignore_errors=True)
    write_shards(_kept(files, kept), draft)
    draft.rename(out / KEPT)
    alike = [replace(score, consistency=float(score.consistency == 1.0)) for score in scores]
    left_out: Counter[str] = Counter()
    if len(scores) < total:
        looked_at = enumerate(islice(read_shards(files), limit))
        left_out.update(sample.task for number, sample in looked_at if number not in by_number)
    return MiningReport(
        len(scores),
        len(kept),
        _means(scores),
        _means(list(kept.values())),
        unanimous=_means(alike),
        left_out=dict(sorted(left_out.items())),
    )


def _can_read(engine: Engine, sample: Sample) -> bool:
    return sample.task in engine.profile.tasks and suits(sample, engine.profile)


def _read_scores(path: Path, settings: dict[str, object]) -> list[Score]:
    """The scores of an earlier run with the same settings."""
    if not path.is_file():
        return []
    text = path.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        # A run that was killed in the middle of a line.
        path.write_text(whole, encoding="utf-8")
    if not whole:
        return []
    first, *rest = whole.splitlines()
    if json.loads(first) != settings:
        raise UsageError(f"{path} belongs to other shards, another model or other settings; choose another folder")
    return [Score(**json.loads(line)) for line in rest]


def _kept(files: Sequence[Path], chosen: dict[int, Score]) -> Iterator[Sample]:
    last = max(chosen, default=-1)
    for index, sample in enumerate(islice(read_shards(files), last + 1)):
        if index in chosen:
            score = chosen[index]
            marks = {"consistency": round(score.consistency, 4), "accuracy": round(score.accuracy, 4)}
            yield replace(sample, source=sample.source | marks)


def _means(scores: Sequence[Score]) -> dict[str, float]:
    found: dict[str, list[float]] = defaultdict(list)
    for score in scores:
        found[score.task].append(score.consistency)
    return {task: sum(values) / len(values) for task, values in sorted(found.items())}
