"""Random networks of a given size: what decoding costs does not depend on what the weights know."""

from __future__ import annotations

from pathlib import Path

import torch

from mineru_diffusion.engine.types import CheckpointProfile
from mineru_diffusion.model.checkpoint import Checkpoint
from mineru_diffusion.training.config import NetworkConfig
from mineru_diffusion.training.export import new_network, new_processor

MIDDLE = NetworkConfig(
    vision_width=384,
    vision_depth=8,
    vision_heads=6,
    width=768,
    layers=13,
    heads=12,
    kv_heads=4,
    head_dim=64,
    intermediate=2048,
)
"""About 100 million parameters."""


def random_checkpoint(
    network: NetworkConfig = MIDDLE, *, block_length: int = 16, seed: int = 0, device: torch.device | str = "cpu"
) -> Checkpoint:
    """A network with random weights, its predictions wide enough apart that a threshold decides several a step."""
    processor = new_processor(network)
    model = new_network(network, processor)
    model.init_for_training(seed)
    with torch.no_grad():
        model.language_model.lm_head.weight.mul_(6.0)
    profile = CheckpointProfile(
        block_length=block_length,
        threshold=0.3,
        tasks=("text",),
        text_unit="line",
        line_height=32,
        line_max_aspect=7.0,
        max_tokens=32,
    )
    return Checkpoint(model.eval().to(device), processor, profile, Path("random"))


def parameters(checkpoint: Checkpoint) -> int:
    """How many numbers the network has."""
    return sum(p.numel() for p in checkpoint.model.parameters())
