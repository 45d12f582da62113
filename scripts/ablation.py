"""Does mining help? Three second stages from one first stage, with equal training compute, on several seeds:

    one      goes on with stage 1's data
    random   half stage 1's data, half a random part of a pool of harder samples
    mined    half stage 1's data, half the part of that pool that the stage 1 network is least consistent on

    python scripts/ablation.py OUT --start CHECKPOINT --seeds 3 --pool 1200 --steps 200

All arms learn from the answers alone: pools do not know where characters stand, so helper losses would favour the arms
with more rendered lines. Prints a table and writes OUT/ablation.json. Everything is kept in OUT; the same command goes
on where it was stopped, and with more `--seeds` adds to it.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
from PIL import Image

from mineru_diffusion.assets import packaged_checkpoint
from mineru_diffusion.engine.local import load_engine
from mineru_diffusion.engine.types import DecodingParams
from mineru_diffusion.evaluation.lines import held_out_lines
from mineru_diffusion.evaluation.metrics import character_errors
from mineru_diffusion.evaluation.reading import read_images
from mineru_diffusion.synthesis.lines import LineStream
from mineru_diffusion.synthesis.sample import Sample
from mineru_diffusion.synthesis.shards import read_shards, write_shards
from mineru_diffusion.training.config import DataConfig, HelpersConfig, TrainConfig
from mineru_diffusion.training.config_file import load_config
from mineru_diffusion.training.mining import KEPT, mine
from mineru_diffusion.training.shards import shard_files
from mineru_diffusion.training.trainer import Trainer

ARMS = ("one", "random", "mined")
POOL_WEAR = 1.5
SETS = {"clean": {"degrade": 0.0}, "worn": {"degrade": POOL_WEAR, "worn_share": 1.0}}
"""The held-out lines: words that training never shows, a tenth in faces that it never shows."""

Errors = dict[str, list[int]]
"""Character errors of each held-out line, by set."""


def pool_samples(seed: int, count: int, config: TrainConfig) -> Iterator[Sample]:
    """Lines as stage 1 has them, but harder worn, so that there is something to be unsure of."""
    stream = LineStream(
        seed=seed, min_chars=config.lines.min_chars, max_chars=config.lines.max_chars, degrade=POOL_WEAR
    )
    for number in range(count):
        line = stream.sample(number)
        yield Sample(line.image, "text", line.text, source={"generator": "lines", "seed": seed, "index": number})


def run(config: TrainConfig, out: Path) -> Path:
    """Train to the end, from wherever it was; returns the checkpoint."""
    if not (out / "done").exists():
        Trainer(config, out, resume=True, quiet=True).run()
        (out / "done").touch()
    return out / "checkpoint"


def make_pool(out: Path, seed: int, options: argparse.Namespace, config: TrainConfig) -> Path:
    """The pool's shards; written aside first, so that a stopped run leaves no half of them."""
    pool = out / "pool"
    if not pool.is_dir():
        draft = out / "pool.new"
        write_shards(pool_samples(1000 + seed, options.pool, config), draft)
        draft.rename(pool)
    return pool


def random_part(pool: Path, out: Path, count: int, seed: int) -> Path:
    """As many samples of the pool as mining kept, at random."""
    if not out.is_dir():
        samples = list(read_shards(shard_files(pool)))
        chosen = sorted(np.random.default_rng(seed).permutation(len(samples))[:count].tolist())
        draft = out.with_name(out.name + ".new")
        write_shards((samples[i] for i in chosen), draft)
        draft.rename(out)
    return out


def one_seed(seed: int, options: argparse.Namespace, base: TrainConfig) -> dict[str, Errors]:
    """Errors on the held-out lines of each arm, and of stage 1 itself."""
    out = options.out / f"seed{seed}"
    decay = replace(base.optimizer, decay_steps=options.first_steps)
    first = replace(base, name="stage1", seed=seed, max_steps=options.first_steps, optimizer=decay)
    stage1 = run(first, out / "stage1")
    pool = make_pool(out, seed, options, base)
    mined = out / "hard"
    if not (mined / KEPT).is_dir():
        with load_engine(stage1, device=base.device) as engine:
            mine([pool], engine, mined, factor=engine.image_factor, draws=options.draws, keep=options.keep)
    count = sum(1 for _ in read_shards(shard_files(mined)))
    parts = {"random": random_part(pool, out / "random_part", count, seed), "mined": mined}
    found = {"stage1": errors_of(stage1, options, base)}
    for arm in ARMS:
        mixture = {"lines": 1.0} if arm == "one" else {"lines": 0.5, str(parts[arm]): 0.5}
        config = replace(
            base,
            name=arm,
            seed=seed + 100,
            init_from=str(out / "stage1"),
            max_steps=options.steps,
            data=DataConfig(mixture=mixture, workers=0),
            optimizer=replace(base.optimizer, decay_steps=options.steps),
        )
        found[arm] = errors_of(run(config, out / arm), options, base)
        print(f"seed {seed}, {arm}: {found[arm]['total']}", flush=True)
    return found


def truths_of(options: argparse.Namespace, base: TrainConfig) -> dict[str, list[tuple[Image.Image, str]]]:
    """The held-out lines: pictures and texts."""
    lengths = {"min_chars": min(5, base.lines.max_chars), "max_chars": base.lines.max_chars}
    return {
        name: [(Image.fromarray(line.image), line.text) for line, _ in held_out_lines(options.lines, **lengths, **wear)]
        for name, wear in SETS.items()
    }


def errors_of(checkpoint: Path, options: argparse.Namespace, base: TrainConfig) -> Errors:
    """Kept beside the checkpoint, so that a rerun does not read the lines again."""
    kept = checkpoint.parent / f"errors_{options.lines}.json"
    if not kept.is_file():
        found: Errors = {}
        with load_engine(checkpoint, device=base.device) as engine:
            for name, lines in truths_of(options, base).items():
                images, texts = zip(*lines, strict=True)
                reading = read_images(engine, images, "text", DecodingParams(), multiple=engine.image_factor)
                found[name] = [character_errors(p, t) for p, t in zip(reading.texts, texts, strict=True)]
        found["total"] = [sum(found[name]) for name in SETS]
        kept.write_text(json.dumps(found), encoding="utf-8")
    return dict(json.loads(kept.read_text(encoding="utf-8")))


def compare(better: list[list[int]], worse: list[list[int]], lengths: list[int]) -> dict[str, object]:
    """How much lower the error rate of one arm is than another's: by seed, their mean, and the 95 % interval of that
    mean when the held-out lines are drawn anew (2000 bootstrap samples of lines; the seeds stay)."""
    gain = np.array(worse) - np.array(better)
    lengths_L = np.array(lengths)
    rng = np.random.default_rng(0)
    draws = rng.integers(0, len(lengths), (2000, len(lengths)))
    means = gain.mean(axis=0)[draws].sum(axis=1) / lengths_L[draws].sum(axis=1)
    low, high = np.percentile(means, (2.5, 97.5))
    by_seed = (gain.sum(axis=1) / lengths_L.sum()).tolist()
    return {"by_seed": by_seed, "mean": statistics.mean(by_seed), "lines_95": [float(low), float(high)]}


def report(found: list[dict[str, Errors]], options: argparse.Namespace, base: TrainConfig) -> dict[str, object]:
    """Prints the tables; returns them."""
    lengths = {name: [len(text) for _, text in lines] for name, lines in truths_of(options, base).items()}
    table: dict[str, object] = {}
    for name in SETS:
        print(f"\ncharacter error rate on {options.lines} held-out lines, {name}; {len(found)} seeds")
        rates: dict[str, object] = {}
        for arm in ("stage1", *ARMS):
            values = [sum(errors[arm][name]) / sum(lengths[name]) for errors in found]
            spread = statistics.stdev(values) if len(values) > 1 else 0.0
            rates[arm] = {"mean": statistics.mean(values), "stdev": spread, "values": values}
            print(f"  {arm:8} {statistics.mean(values):7.2%}  +- {spread:.2%}")
        for other in ("random", "one"):
            gain = compare([e["mined"][name] for e in found], [e[other][name] for e in found], lengths[name])
            rates[f"mined_below_{other}"] = gain
            low, high = gain["lines_95"]  # type: ignore[misc]
            print(f"  mined below {other:6} by {gain['mean']:+.2%} [{low:+.2%}, {high:+.2%}]")
        table[name] = rates
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--config", type=Path, default=Path("configs/tiny.yaml"))
    parser.add_argument("--start", type=Path, help="checkpoint folder to start from (default: the packaged one)")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-steps", type=int, default=0, help="steps of stage 1; 0: the start is stage 1")
    parser.add_argument("--steps", type=int, default=200, help="steps of each second stage")
    parser.add_argument("--pool", type=int, default=1200, help="samples that are mined")
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--keep", type=float, default=0.3)
    parser.add_argument("--lines", type=int, default=300, help="held-out lines that are read, of each set")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    start = options.start or packaged_checkpoint()
    base = load_config(options.config, [*options.overrides, f"checkpoint={start}", f"device={options.device}"])
    off = {field.name: 0.0 for field in fields(HelpersConfig) if field.name != "alignment_layers"}
    base = replace(base, helpers=replace(base.helpers, **off))
    found = [one_seed(seed, options, base) for seed in range(options.seeds)]
    settings = {k: v for k, v in vars(options).items() if k not in ("out", "start", "config")}
    settings |= {"start": options.start.name if options.start else "packaged", "config": options.config.name}
    record = {"settings": settings, "cer": report(found, options, base)}
    (options.out / "ablation.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
