"""The smallest runs that have every part."""

from __future__ import annotations

import json
from pathlib import Path

SMALL = """
name: small
stage: {stage}
device: cpu
max_steps: {steps}
batch_positions: 600
log_every: 2
lines: {{min_chars: 1, max_chars: 6, chunk: 24, workers: 0}}
network: {{vision_width: 48, vision_depth: 1, vision_heads: 2, width: 64, layers: 2, heads: 2, kv_heads: 1,
           head_dim: 16, intermediate: 64}}
helpers: {{alignment_layers: [1]}}
diffusion: {{block_length: 8}}
optimizer: {{warmup_steps: 1}}
"""


def config(tmp_path: Path, *, stage: str = "joint", steps: int = 6) -> Path:
    """A configuration file."""
    path = tmp_path / f"{stage}-{steps}.yaml"
    path.write_text(SMALL.format(stage=stage, steps=steps))
    return path


def losses(folder: Path) -> list[dict[str, float]]:
    """A run's log without what the clock put into it."""
    records = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [{k: v for k, v in r.items() if k not in ("minutes", "samples_per_second")} for r in records]
