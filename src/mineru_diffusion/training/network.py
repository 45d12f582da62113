"""From a configuration to the network that is trained: new, or a checkpoint's; with adapters and frozen parts."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from mineru_diffusion.engine.types import CheckpointProfile
from mineru_diffusion.errors import UsageError
from mineru_diffusion.model import MinerUDiffusionForConditionalGeneration, MinerUDiffusionProcessor
from mineru_diffusion.model.checkpoint import load_checkpoint
from mineru_diffusion.training.config import LINES, TrainConfig
from mineru_diffusion.training.data import SLOT_WIDTH
from mineru_diffusion.training.export import line_profile, new_network, new_processor
from mineru_diffusion.training.objective import TrainingModule
from mineru_diffusion.training.streams import Objective


@dataclass
class Parts:
    """A network, its processor, and what its exported checkpoint will say about itself."""

    network: MinerUDiffusionForConditionalGeneration
    processor: MinerUDiffusionProcessor
    profile: CheckpointProfile


def build_network(config: TrainConfig) -> Parts:
    """The network of a run, with its first weights.

    Raises:
        CheckpointError: `checkpoint` cannot be loaded.
        UsageError: rendered lines are to be read by a checkpoint that reads regions.
    """
    if not config.checkpoint:
        processor = new_processor(config.network, config.max_pixels)
        network = new_network(config.network, processor)
        network.init_for_training(config.seed)
        return Parts(network, processor, line_profile(config))
    loaded = load_checkpoint(config.checkpoint, dtype=torch.float32)
    if LINES in config.sources and loaded.profile.text_unit != "line":
        raise UsageError(
            f"{config.checkpoint} reads whole regions, and rendered lines are data for checkpoints that read lines; "
            "name shards in data.mixture"
        )
    profile = replace(loaded.profile, block_length=config.block_length, objective=config.objective)
    return Parts(loaded.model, loaded.processor, profile)


def build_module(
    config: TrainConfig, network: MinerUDiffusionForConditionalGeneration, *, flex: bool
) -> TrainingModule:
    """The network with its losses; what the run does not train is frozen."""
    objective = Objective(config.diffusion, config.objective == "autoregressive", flex)
    vision = network.config.vision_config
    token_px = vision.patch_size * vision.spatial_merge_size
    # The helper heads' first weights are the configuration's too: processes that each hold a share of them must agree.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        module = TrainingModule(
            network, objective, config.helpers, token_px // SLOT_WIDTH if LINES in config.sources else 0
        )
    if config.freeze_vision:
        for part in (network.vision_model, network.vision_abstractor):
            part.requires_grad_(False)
        for name in ("heads", "ctc"):
            if hasattr(module, name):
                getattr(module, name).requires_grad_(False)
    return module


def recompute_activations(network: MinerUDiffusionForConditionalGeneration, wanted: bool) -> None:
    """Keep only the layers' inputs for the backward pass, or everything."""
    network.vision_model.gradient_checkpointing = wanted
    network.language_model.model.gradient_checkpointing = wanted
