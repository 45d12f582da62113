"""The public implementation's decoding runs: same tokens, same step maps, fewer forward passes."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
import torch

from mineru_diffusion.engine.batch import generate_batch
from mineru_diffusion.engine.loop import DecodingLoop
from mineru_diffusion.engine.requests import new_sequence
from mineru_diffusion.engine.sequence import Sequence
from mineru_diffusion.engine.types import DecodingParams, Result
from mineru_diffusion.model.checkpoint import Checkpoint, load_checkpoint
from tests.parity import kit
from tests.tiny import DEVICE


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    return load_checkpoint(kit.checkpoint(), device=DEVICE)


def single_token_stops(run: dict[str, Any]) -> bool:
    """Its "strings" are ids; a stop of two ids is a string across tokens, which ours, stopping by id, does not have."""
    return not any(" " in stop for stop in run["stop"] or [])


RUNS = [run for run in kit.logic_runs() if single_token_stops(run)]


def expected_tokens(run: dict[str, Any]) -> list[int]:
    """Its tokens up to the earliest stop (the public implementation cuts at the first STRING that it finds)."""
    stops = {int(stop) for stop in run["stop"] or []}
    tokens = run["tokens"]
    return tokens[: next((i for i, token in enumerate(tokens) if token in stops), len(tokens))]


def params(run: dict[str, Any]) -> DecodingParams:
    return DecodingParams(
        threshold=run["params"]["dynamic_threshold"],
        max_tokens=run["params"]["gen_length"],
        stop_ids=tuple(int(stop) for stop in run["stop"] or []),
        # Both are ours alone.
        repetition_guard=False,
        skip_after_stop=False,
    )


def decode_alone(checkpoint: Checkpoint, run: dict[str, Any]) -> Result:
    """Our decoding of one run by itself."""
    tensors = kit.tensors(run["case"])
    (result,) = generate_batch(
        checkpoint.model,
        tensors["input_ids"],
        tensors.get("pixel_values"),
        tensors.get("image_grid_thw"),
        params(run),
        checkpoint.profile,
        block_length=run["params"]["block_length"],
    )
    return result


def prompts(checkpoint: Checkpoint) -> dict[str, tuple[list[int], torch.Tensor]]:
    model = checkpoint.model
    prepared = {}
    with torch.inference_mode():
        for case in {run["case"] for run in RUNS}:
            tensors = kit.tensors(case)
            visual = None
            if "pixel_values" in tensors:
                visual = model.encode_images(tensors["pixel_values"], tensors["image_grid_thw"])
            ids = tensors["input_ids"]
            prepared[case] = (ids[0].tolist(), model.embed(ids, visual)[0])
    return prepared


def test_all_runs_in_flight_together(checkpoint: Checkpoint) -> None:
    """Every run of one block length shares its passes with all others, each with its own threshold, stops and limit."""
    assert len(RUNS) > 50
    prepared = prompts(checkpoint)
    groups = defaultdict(list)
    for run in RUNS:
        groups[run["params"]["block_length"]].append(run)
    for block_length, group in groups.items():
        loop = DecodingLoop(checkpoint.model, block_length=block_length, max_rows=4096, max_pages=1 << 15)
        sequences: list[Sequence] = []
        for number, run in enumerate(group):
            ids, embeds = prepared[run["case"]]
            sequence = new_sequence(
                number,
                ids,
                params(run),
                checkpoint.profile,
                block_length=block_length,
                mask_id=loop.mask_id,
                default_stops=frozenset(),
            )
            sequence.prompt_embeds = embeds
            loop.scheduler.waiting.append(sequence)
            sequences.append(sequence)
        while loop.scheduler.waiting or loop.scheduler.running:
            loop.scheduler.admit()
            for _ in loop.run_pass():
                pass
        assert loop.cache.used == 0
        for sequence, run in zip(sequences, group, strict=True):
            tokens = expected_tokens(run)
            assert sequence.tokens == tokens, run["id"]
            assert sequence.steps == run["step_map"][: len(tokens)], run["id"]
            # The prompt's pass carries the first step, commits ride along, and the last block is never committed.
            assert sequence.nfe < run["n_forward"], run["id"]
            assert sequence.finish_reason == ("stop" if len(tokens) < len(run["tokens"]) or stopped(run) else "length")


def stopped(run: dict[str, Any]) -> bool:
    return len(run["tokens"]) < run["params"]["gen_length"]


@pytest.mark.parametrize("run", [RUNS[0], RUNS[len(RUNS) // 2], RUNS[-1]], ids=lambda run: run["id"])
def test_generate_alone_gives_the_same(run: dict[str, Any], checkpoint: Checkpoint) -> None:
    result = decode_alone(checkpoint, run)
    tokens = expected_tokens(run)
    assert list(result.tokens) == tokens
    assert list(result.steps) == run["step_map"][: len(tokens)]


@pytest.mark.parametrize("run", [run for run in RUNS if run["steps"]][::20], ids=lambda run: run["id"])
def test_confidences(run: dict[str, Any], checkpoint: Checkpoint) -> None:
    result = decode_alone(checkpoint, run)
    block = run["params"]["block_length"]
    expected: dict[int, float] = {}
    blocks = 0
    decided = 0
    for step in run["steps"]:
        for position, confidence in zip(step["pos"], step["conf"], strict=True):
            expected[blocks * block + position] = confidence
        decided += len(step["pos"])
        blocks = decided // block
    for index, confidence in enumerate(result.confidences):
        assert confidence == pytest.approx(expected[index], abs=1e-3)
