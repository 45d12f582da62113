"""Low-rank adapters by PEFT on the decoder's and the merger's matrices: trained alone, saved as an adapter that PEFT
reads, and merged into the weights at export."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from mineru_diffusion.errors import MissingExtra
from mineru_diffusion.model import MinerUDiffusionForConditionalGeneration
from mineru_diffusion.training.config import LoraConfig

TARGETS = (
    r"language_model\.model\.layers\.\d+\.(self_attn\.[qkvo]_proj|mlp\.(gate|up|down)_proj)"
    r"|vision_abstractor\.projection\.mlp\.(0|2)"
)
_A, _B, _BASE = ".lora_A.default.weight", ".lora_B.default.weight", ".base_layer."


def add_adapters(network: MinerUDiffusionForConditionalGeneration, config: LoraConfig) -> Any:
    """Put adapters into the network, in place, and freeze everything else.

    Returns:
        PEFT's wrapper of it, which saves the adapter (`save_pretrained`).

    Raises:
        MissingExtra: peft is not installed.
    """
    try:
        import peft
    except ImportError as error:
        raise MissingExtra("LoRA", "train") from error
    return peft.get_peft_model(
        network,
        peft.LoraConfig(
            r=config.rank, lora_alpha=config.alpha, lora_dropout=config.dropout, target_modules=TARGETS, bias="none"
        ),
    )


def merge_weights(weights: Mapping[str, Tensor], config: LoraConfig) -> dict[str, Tensor]:
    """Weights under the published names, W + alpha / r * B A where there is an adapter (arXiv 2106.09685, eq. 3).

    Args:
        weights: of a network with adapters, `network.state_dict()` names.
    """
    merged: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        if name.endswith((_A, _B)):
            continue
        stem = name.removesuffix(f"{_BASE}weight")
        if stem != name and stem + _A in weights:
            delta = weights[stem + _B].float() @ weights[stem + _A].float()
            tensor = tensor + (config.alpha / config.rank * delta).to(tensor.dtype)
        merged[re.sub(re.escape(_BASE), ".", name)] = tensor
    return merged


def save_adapter(wrapper: Any, weights: Mapping[str, Tensor], folder: Path) -> None:
    """Write `adapter_config.json` and `adapter_model.safetensors`.

    Args:
        wrapper: as `add_adapters` returned it.
        weights: the network's (averaged) weights.
    """
    own = {f"base_model.model.{name}": tensor for name, tensor in weights.items() if name.endswith((_A, _B))}
    wrapper.save_pretrained(str(folder), state_dict=own, save_embedding_layers=False)
