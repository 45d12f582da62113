"""Does mining help? Three second stages from one first stage, with equal compute, on several seeds:

    one      goes on with stage 1's data
    random   stage 1's data and a random part of a pool of samples
    mined    stage 1's data and the part of the pool that the stage 1 network is least consistent on

    python scripts/ablation.py OUT --start CHECKPOINT --seeds 3 --pool 2000 --steps 400

Prints a table and writes OUT/ablation.json. Everything is kept in OUT; the same command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from mineru_diffusion.assets import packaged_checkpoint
from mineru_diffusion.engine.local import load_engine
from mineru_diffusion.evaluation.lines import evaluate_lines
from mineru_diffusion.synthesis.lines import LineStream
from mineru_diffusion.synthesis.sample import Sample
from mineru_diffusion.synthesis.shards import read_shards, write_shards
from mineru_diffusion.training.config import DataConfig, TrainConfig
from mineru_diffusion.training.config_file import load_config
from mineru_diffusion.training.mining import KEPT, mine
from mineru_diffusion.training.shards import shard_files
from mineru_diffusion.training.trainer import Trainer

ARMS = ("one", "random", "mined")


def pool_samples(seed: int, count: int, config: TrainConfig) -> Iterator[Sample]:
    """Lines as stage 1 has them, but harder worn, so that there is something to be unsure of."""
    stream = LineStream(seed=seed, min_chars=config.lines.min_chars, max_chars=config.lines.max_chars, degrade=1.5)
    for number in range(count):
        line = stream.sample(number)
        yield Sample(line.image, "text", line.text, source={"generator": "lines", "seed": seed, "index": number})


def run(config: TrainConfig, out: Path) -> Path:
    """Train to the end, from wherever it was; returns the checkpoint."""
    Trainer(config, out, resume=True, quiet=True).run()
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


def one_seed(seed: int, options: argparse.Namespace, base: TrainConfig) -> dict[str, float]:
    """Character error rate on held-out lines of each arm, and of stage 1 itself."""
    out = options.out / f"seed{seed}"
    first = replace(base, name="stage1", seed=seed, max_steps=options.first_steps)
    stage1 = run(first, out / "stage1")
    pool = make_pool(out, seed, options, base)
    mined = out / "hard"
    if not (mined / KEPT).is_dir():
        with load_engine(stage1, device=base.device) as engine:
            mine([pool], engine, mined, factor=engine.image_factor, draws=options.draws, keep=options.keep)
    count = sum(1 for _ in read_shards(shard_files(mined)))
    parts = {"random": random_part(pool, out / "random_part", count, seed), "mined": mined}
    scores = {"stage1": error_rate(stage1, options)}
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
        scores[arm] = error_rate(run(config, out / arm), options)
        print(f"seed {seed}, {arm}: {scores[arm]:.2%}", flush=True)
    return scores


def error_rate(checkpoint: Path, options: argparse.Namespace) -> float:
    """Kept beside the checkpoint, so that a rerun does not read the lines again."""
    kept = checkpoint.parent / f"cer_{options.lines}.json"
    if not kept.is_file():
        (score,) = evaluate_lines(checkpoint, lines=options.lines, thresholds=(0.95,), device=options.device)
        kept.write_text(json.dumps({"cer": score.cer}), encoding="utf-8")
    return float(json.loads(kept.read_text(encoding="utf-8"))["cer"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--config", type=Path, default=Path("configs/tiny.yaml"))
    parser.add_argument("--start", type=Path, default=packaged_checkpoint(), help="checkpoint folder to start from")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-steps", type=int, default=100, help="steps of stage 1, from the start on")
    parser.add_argument("--steps", type=int, default=400, help="steps of each second stage")
    parser.add_argument("--pool", type=int, default=2000, help="samples that are mined")
    parser.add_argument("--draws", type=int, default=4)
    parser.add_argument("--keep", type=float, default=0.3)
    parser.add_argument("--lines", type=int, default=300, help="held-out lines that are read")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    base = load_config(options.config, [*options.overrides, f"checkpoint={options.start}", f"device={options.device}"])
    found = [one_seed(seed, options, base) for seed in range(options.seeds)]
    table = {}
    print(f"\ncharacter error rate on {options.lines} held-out lines, {options.seeds} seeds")
    for arm in ("stage1", *ARMS):
        values = [scores[arm] for scores in found]
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        table[arm] = {"mean": statistics.mean(values), "stdev": spread, "values": values}
        print(f"  {arm:8} {table[arm]['mean']:7.2%}  +- {spread:.2%}")
    settings = {k: str(v) if isinstance(v, Path) else v for k, v in vars(options).items()}
    (options.out / "ablation.json").write_text(
        json.dumps({"settings": settings, "cer": table}, indent=2) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
