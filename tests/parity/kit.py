"""The parity kit: tensors and traces that came from running the public implementation. The full kit is used where it is
found, else the trimmed copy beside this file."""

from __future__ import annotations

import gzip
import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from tests.tiny import DEVICE

HERE = Path(__file__).parent
TRIMMED = HERE / "data"


@cache
def full_kit() -> Path | None:
    """Folder of the full kit, or None."""
    named = os.environ.get("MINERU_DIFFUSION_PARITY_KIT")
    if named:
        return Path(named) if (Path(named) / "checkpoint" / "config.json").is_file() else None
    candidates = [
        parent.parent / "shared" / "parity" for parent in HERE.parents if (parent / "pyproject.toml").is_file()
    ]
    return next((path for path in candidates if (path / "checkpoint" / "config.json").is_file()), None)


def root() -> Path:
    """The full kit, else the trimmed copy."""
    return full_kit() or TRIMMED


def checkpoint() -> Path:
    return root() / "checkpoint"


def keys_full() -> dict[str, Any]:
    return json.loads((root() / "keys_full.json").read_text(encoding="utf-8"))


def cases() -> list[str]:
    return sorted(path.stem for path in (root() / "cases").glob("*.safetensors"))


@cache
def tensors(case: str) -> dict[str, torch.Tensor]:
    return load_file(str(root() / "cases" / f"{case}.safetensors"), device=str(DEVICE))


@cache
def runs() -> list[dict[str, Any]]:
    """All generate() runs of the public implementation, as dictionaries (see the kit's README for the fields)."""
    plain = root() / "cases" / "runs.jsonl"
    if plain.is_file():
        lines = plain.read_text(encoding="utf-8").splitlines()
    else:
        lines = gzip.decompress((root() / "cases" / "runs.jsonl.gz").read_bytes()).decode().splitlines()
    return [json.loads(line) for line in lines]


def logic_runs() -> list[dict[str, Any]]:
    """Greedy runs whose outcome is decided by logic: the quirks of the public implementation left out, and batches of
    two, whose finished rows it overwrites (each row is there as a run of its own)."""
    return [
        run
        for run in runs()
        if run["sampler"] == "greedy_patch"
        and "/quirk_" not in run["id"]
        and not run.get("error")
        and run["case"] != "batch2"
    ]
