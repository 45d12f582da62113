"""From a training state to a checkpoint in the published format: the published architecture's parts only."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path

import torch

from mineru_diffusion.engine.types import CheckpointProfile
from mineru_diffusion.model import (
    MinerUDiffusionConfig,
    MinerUDiffusionForConditionalGeneration,
    MinerUDiffusionProcessor,
)
from mineru_diffusion.model.generation import SECTION
from mineru_diffusion.model.images import ImageProcessor
from mineru_diffusion.synthesis.charset import CHARSET
from mineru_diffusion.training.config import NetworkConfig, TrainConfig
from mineru_diffusion.training.tokenizer import CHAT_TEMPLATE, character_tokenizer

LINE_HEIGHT = 32
MAX_LINE_WIDTH = 4096
"""Pixels of the longest line that the image processor lets through unshrunk."""


def new_processor(network: NetworkConfig) -> MinerUDiffusionProcessor:
    """Character tokenizer and image processor of a line-reading checkpoint."""
    side = network.patch_size * network.merge
    images = ImageProcessor(
        patch_size=network.patch_size,
        merge_size=network.merge,
        min_pixels=side * side,
        max_pixels=MAX_LINE_WIDTH * LINE_HEIGHT,
    )
    return MinerUDiffusionProcessor(images, character_tokenizer(CHARSET), CHAT_TEMPLATE)


def new_network(network: NetworkConfig, processor: MinerUDiffusionProcessor) -> MinerUDiffusionForConditionalGeneration:
    """The published architecture at the configured size, ids from the tokenizer; weights are not yet initialised for
    training (see `init_for_training`)."""
    ids = processor.tokenizer.convert_tokens_to_ids
    tokens = len(processor.tokenizer)
    config = MinerUDiffusionConfig(
        text_config={
            "vocab_size": -(-tokens // 16) * 16,
            "hidden_size": network.width,
            "intermediate_size": network.intermediate,
            "num_hidden_layers": network.layers,
            "max_window_layers": network.layers,
            "num_attention_heads": network.heads,
            "num_key_value_heads": network.kv_heads,
            "head_dim": network.head_dim,
            "rope_theta": network.rope_theta,
            "max_position_embeddings": 4096,
        },
        vision_config={
            "depth": network.vision_depth,
            "embed_dim": network.vision_width,
            "hidden_size": network.width,
            "num_heads": network.vision_heads,
            "patch_size": network.patch_size,
            "spatial_merge_size": network.merge,
        },
        vision_projector_type=f"patch_merger{network.merge}x",
        image_token_id=ids("<|image_pad|>"),
        video_token_id=ids("<|video_pad|>"),
        vision_start_token_id=ids("<|vision_start|>"),
        vision_end_token_id=ids("<|vision_end|>"),
        mask_token_id=ids("<|MASK|>"),
        image_size=LINE_HEIGHT,
        patch_size=network.patch_size,
        downsample_ratio=1.0 / network.merge,
        bos_token_id=None,
        eos_token_id=processor.tokenizer.eos_token_id,
        pad_token_id=processor.tokenizer.pad_token_id,
    )
    return MinerUDiffusionForConditionalGeneration(config)


def line_profile(config: TrainConfig) -> CheckpointProfile:
    """What a line-reading checkpoint says about itself."""
    return CheckpointProfile(
        block_length=config.diffusion.block_length,
        threshold=0.95,
        tasks=("text",),
        text_unit="line",
        line_height=LINE_HEIGHT,
        line_max_aspect=config.lines.max_aspect,
        prompts={"text": "\nText Recognition:"},
        max_tokens=256,
    )


def export_checkpoint(
    network: MinerUDiffusionForConditionalGeneration,
    processor: MinerUDiffusionProcessor,
    profile: CheckpointProfile,
    folder: Path,
    dtype: torch.dtype = torch.float16,
) -> None:
    """Write a checkpoint folder; it appears whole or not at all.

    Args:
        network: the trained network; it is not changed.
        folder: replaced if it exists.
        dtype: of the stored weights.
    """
    draft = folder.with_name(folder.name + ".new")
    shutil.rmtree(draft, ignore_errors=True)
    copy = MinerUDiffusionForConditionalGeneration(network.config).to(dtype)
    copy.load_state_dict(network.state_dict())
    kept = network.config.dtype
    copy.config.dtype = dtype
    copy.save_pretrained(str(draft))
    network.config.dtype = kept
    processor.save_pretrained(draft)
    path = draft / "generation_config.json"
    fields = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    fields.pop("_from_model_config", None)
    section = {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(profile).items()}
    fields |= {
        "eos_token_id": [processor.tokenizer.eos_token_id, processor.tokenizer.pad_token_id],
        "pad_token_id": processor.tokenizer.pad_token_id,
        SECTION: section,
    }
    path.write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")
    for file in draft.iterdir():
        # Weights come out readable by their owner alone, which would go into a wheel like that.
        file.chmod(0o644)
    shutil.rmtree(folder, ignore_errors=True)
    draft.rename(folder)
