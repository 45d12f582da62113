"""A very small random network with the character tokenizer, for tests that need a model but no knowledge."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import torch

from mineru_diffusion.engine.types import CheckpointProfile
from mineru_diffusion.model import MinerUDiffusionForConditionalGeneration, MinerUDiffusionProcessor
from mineru_diffusion.model.checkpoint import Checkpoint
from mineru_diffusion.training.config import DiffusionConfig, NetworkConfig, TrainConfig
from mineru_diffusion.training.export import line_profile, new_network, new_processor

DEVICE = torch.device(os.environ.get("MINERU_DIFFUSION_TEST_DEVICE", "cpu"))
"""Where the tests of the engine, and those against the parity kit, run their networks."""

NETWORK = NetworkConfig(
    vision_width=48,
    vision_depth=2,
    vision_heads=2,
    width=64,
    layers=3,
    heads=4,
    kv_heads=2,
    head_dim=16,
    intermediate=96,
)


@cache
def random_model(seed: int = 0) -> tuple[MinerUDiffusionForConditionalGeneration, MinerUDiffusionProcessor]:
    """Random weights, wide enough apart that predictions differ between positions."""
    processor = new_processor(NETWORK)
    model = new_network(NETWORK, processor)
    model.init_for_training(seed)
    with torch.no_grad():
        model.language_model.lm_head.weight.mul_(6.0)
    return model.eval(), processor


def profile(block_length: int = 8) -> CheckpointProfile:
    return line_profile(TrainConfig(diffusion=DiffusionConfig(block_length=block_length)))


def random_checkpoint(block_length: int = 8) -> Checkpoint:
    model, processor = random_model()
    return Checkpoint(model.to(DEVICE), processor, profile(block_length), Path("random"))
