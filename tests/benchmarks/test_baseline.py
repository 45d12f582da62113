"""The plain loop must be what it claims to be: the public implementation's tokens, steps and number of passes."""

from __future__ import annotations

import pytest

from mineru_diffusion.benchmarks.baseline import decode_plainly
from mineru_diffusion.model.checkpoint import Checkpoint, load_checkpoint
from tests.parity import kit
from tests.tiny import DEVICE

RUNS = [run for run in kit.logic_runs() if not any(" " in stop for stop in run["stop"] or [])]


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    return load_checkpoint(kit.checkpoint(), device=DEVICE)


@pytest.mark.parametrize("run", RUNS[:: len(RUNS) // 12], ids=lambda run: run["id"])
def test_the_plain_loop_is_the_public_one(run: dict, checkpoint: Checkpoint) -> None:
    tensors = kit.tensors(run["case"])
    stops = {int(stop) for stop in run["stop"] or []}
    result = decode_plainly(
        checkpoint.model,
        tensors["input_ids"],
        tensors.get("pixel_values"),
        tensors.get("image_grid_thw"),
        block_length=run["params"]["block_length"],
        threshold=run["params"]["dynamic_threshold"],
        max_tokens=run["params"]["gen_length"],
        stop_ids=stops,
    )
    wanted = run["tokens"]
    wanted = wanted[: next((i for i, token in enumerate(wanted) if token in stops), len(wanted))]
    assert result.tokens == wanted
    assert result.steps == run["step_map"][: len(wanted)]
    if not stops:
        assert result.passes == run["n_forward"]
