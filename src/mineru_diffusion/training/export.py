"""From a training state to a checkpoint in the published format: the published architecture's parts only."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor
from transformers.utils import logging

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


def new_processor(network: NetworkConfig, max_pixels: int = 0) -> MinerUDiffusionProcessor:
    """Character tokenizer and image processor of a line-reading checkpoint.

    Args:
        max_pixels: area that larger images are shrunk to; 0: a line of the longest kind.
    """
    side = network.patch_size * network.merge
    images = ImageProcessor(
        patch_size=network.patch_size,
        merge_size=network.merge,
        min_pixels=side * side,
        max_pixels=max_pixels or MAX_LINE_WIDTH * LINE_HEIGHT,
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
    prompts = CheckpointProfile().prompts
    return CheckpointProfile(
        block_length=config.block_length,
        threshold=0.95,
        tasks=config.tasks,
        text_unit="line",
        line_height=LINE_HEIGHT,
        line_max_aspect=config.lines.max_aspect,
        layout_image_size=config.layout_size,
        prompts={task: prompts[task] for task in config.tasks},
        max_tokens=config.max_tokens,
        objective=config.objective,
    )


def export_checkpoint(
    network: MinerUDiffusionForConditionalGeneration,
    processor: MinerUDiffusionProcessor,
    profile: CheckpointProfile,
    folder: Path,
    dtype: torch.dtype = torch.float16,
    weights: Mapping[str, Tensor] | None = None,
) -> None:
    """Write a checkpoint folder; it appears whole or not at all.

    Args:
        network: the trained network; it is not changed.
        folder: replaced if it exists.
        dtype: of the stored weights.
        weights: to be written instead of the network's own, under the published names.
    """
    draft = folder.with_name(folder.name + ".new")
    shutil.rmtree(draft, ignore_errors=True)
    with torch.device("meta"):
        copy = MinerUDiffusionForConditionalGeneration(network.config)
    tensors = network.state_dict() if weights is None else weights
    copy.load_state_dict({k: v.detach().to("cpu", dtype) for k, v in tensors.items()}, assign=True)
    kept = network.config.dtype
    copy.config.dtype = dtype
    with _no_progress_bar():
        copy.save_pretrained(str(draft))
    network.config.dtype = kept
    processor.save_pretrained(draft)
    path = draft / "generation_config.json"
    fields = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    fields.pop("_from_model_config", None)
    section = {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(profile).items()}
    fields |= {
        "eos_token_id": [end_token(processor), fill_token(processor)],
        "pad_token_id": fill_token(processor),
        SECTION: section,
    }
    path.write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")
    for file in draft.iterdir():
        # Weights come out readable by their owner alone, which would go into a wheel like that.
        file.chmod(0o644)
    shutil.rmtree(folder, ignore_errors=True)
    draft.rename(folder)


@contextmanager
def _no_progress_bar() -> Iterator[None]:
    """Checkpoints are written often, and the bar would tear a live line apart."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def end_token(processor: MinerUDiffusionProcessor) -> int:
    """The id that ends an answer: the turn's end, which is the tokenizer's end token or stands beside it."""
    vocabulary = processor.tokenizer.get_vocab()
    return int(vocabulary.get("<|im_end|>", processor.tokenizer.eos_token_id))


def fill_token(processor: MinerUDiffusionProcessor) -> int:
    """The id that fills an answer's last block behind its end."""
    pad = processor.tokenizer.pad_token_id
    return end_token(processor) if pad is None else int(pad)
