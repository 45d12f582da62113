"""Loading a checkpoint folder, with errors that say what is wrong and what to do.

The names and shapes of all tensors are compared with the network before a byte of weights is read, and the network is
built without storage, so that the peak is the weights themselves and one shard.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from transformers import GenerationConfig

from mineru_diffusion.engine.types import CheckpointProfile
from mineru_diffusion.errors import CheckpointError
from mineru_diffusion.model.configuration import MinerUDiffusionConfig
from mineru_diffusion.model.generation import read_profile
from mineru_diffusion.model.modeling import MinerUDiffusionForConditionalGeneration
from mineru_diffusion.model.precision import multiplies_slowly, widen_products
from mineru_diffusion.model.processing import MinerUDiffusionProcessor

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"


@dataclass(frozen=True)
class Checkpoint:
    """A loaded checkpoint: network in evaluation mode, processor, and what it says about itself."""

    model: MinerUDiffusionForConditionalGeneration
    processor: MinerUDiffusionProcessor
    profile: CheckpointProfile
    folder: Path


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a checkpoint, in order.

    Raises:
        CheckpointError: there are none, or the index names one that is missing.
    """
    index = folder / INDEX
    if index.is_file():
        try:
            names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        except (json.JSONDecodeError, KeyError, AttributeError) as error:
            raise CheckpointError(f"{index} cannot be read ({error!r}); download it again") from error
        files = [folder / name for name in names]
        missing = [file.name for file in files if not file.is_file()]
        if missing:
            raise CheckpointError(f"{folder}: {', '.join(missing)} missing; download the shards that {INDEX} names")
        return files
    if (folder / SINGLE).is_file():
        return [folder / SINGLE]
    raise CheckpointError(f"{folder} holds no weights ({SINGLE} or {INDEX}); is it a checkpoint folder?")


def read_config(folder: Path) -> MinerUDiffusionConfig:
    """Read `config.json`.

    Raises:
        CheckpointError: it is missing, malformed, or of another kind of model.
    """
    path = folder / "config.json"
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CheckpointError(f"{folder} has no config.json; pass the folder of a checkpoint") from error
    except (json.JSONDecodeError, NotADirectoryError) as error:
        raise CheckpointError(f"{path} is not valid JSON ({error}); download it again") from error
    kind = fields.get("model_type")
    if kind != MinerUDiffusionConfig.model_type:
        raise CheckpointError(f"{path}: model_type is {kind!r}, expected {MinerUDiffusionConfig.model_type!r}")
    try:
        return MinerUDiffusionConfig.from_dict(fields)
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: {error}") from error


def _check_tensors(model: MinerUDiffusionForConditionalGeneration, files: list[Path], tied: bool) -> None:
    """Compare names and shapes."""
    found: dict[str, tuple[int, ...]] = {}
    for file in files:
        try:
            with safe_open(str(file), framework="pt") as tensors:
                for name in tensors.keys():  # noqa: SIM118 - not a dict
                    found[name] = tuple(tensors.get_slice(name).get_shape())
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{file} is damaged or incomplete ({error}); download it again") from error
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    if tied:
        expected.pop("language_model.lm_head.weight")
        found.pop("language_model.lm_head.weight", None)
    where = files[0].parent
    missing, extra = sorted(set(expected) - set(found)), sorted(set(found) - set(expected))
    if missing or extra:
        found_wrong = ((missing, "missing"), (extra, "unknown"))
        parts = [f"{len(names)} {what} tensors ({_some(names)})" for names, what in found_wrong if names]
        raise CheckpointError(
            f"{where}: {' and '.join(parts)}; config.json and the weights do not belong together, or the weights were "
            "saved by another program: take both from one checkpoint"
        )
    wrong = [name for name in expected if expected[name] != found[name]]
    if wrong:
        name = wrong[0]
        raise CheckpointError(
            f"{where}: {len(wrong)} tensors have other shapes than config.json says, e.g. {name}: "
            f"{list(found[name])} instead of {list(expected[name])}; take both from one checkpoint"
        )


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")


def check_special_ids(config: MinerUDiffusionConfig, processor: MinerUDiffusionProcessor, where: Path) -> None:
    """Compare the ids in `config.json` with the tokenizer's.

    Raises:
        CheckpointError: they disagree: the model would be fed other tokens than it was trained on.
    """
    tokenizer = processor.tokenizer
    vocabulary = tokenizer.get_vocab()
    for field, token in (("mask_token_id", "<|MASK|>"), ("image_token_id", "<|image_pad|>")):
        configured, own = getattr(config, field), vocabulary.get(token)
        if own is None:
            raise CheckpointError(f"{where}: the tokenizer has no token {token}; copy the tokenizer of this checkpoint")
        if configured != own:
            raise CheckpointError(
                f"{where}: config.json has {field} {configured} but the tokenizer's {token} is {own}; "
                "copy config.json and the tokenizer from the same checkpoint"
            )
    size = config.text_config.vocab_size
    if len(vocabulary) and max(vocabulary.values()) >= size:
        raise CheckpointError(
            f"{where}: the tokenizer has ids up to {max(vocabulary.values())} but vocab_size is {size}; "
            "copy config.json and the tokenizer from the same checkpoint"
        )


def load_checkpoint(
    folder: str | Path, *, device: torch.device | str = "cpu", dtype: torch.dtype | None = None
) -> Checkpoint:
    """Load a checkpoint folder in the published format.

    Args:
        folder: with `config.json`, safetensors weights, tokenizer and `preprocessor_config.json`.
        device: where the weights go.
        dtype: of the weights; None keeps the stored one.

    Raises:
        CheckpointError: something is missing, damaged or contradicts itself.
    """
    folder = Path(folder)
    config = read_config(folder)
    profile = read_profile(folder)
    processor = MinerUDiffusionProcessor.from_pretrained(folder)
    check_special_ids(config, processor, folder)
    files = weight_files(folder)
    with torch.device("meta"):
        model = MinerUDiffusionForConditionalGeneration(config)
    tied = bool(config.tie_word_embeddings)
    _check_tensors(model, files, tied)
    for file in files:
        tensors = load_file(str(file), device=str(device))
        if dtype is not None:
            for name in tensors:
                tensors[name] = tensors[name].to(dtype)
        model.load_state_dict(tensors, strict=False, assign=True)
        del tensors
    if tied:
        model.language_model.lm_head.weight = model.language_model.model.embed_tokens.weight
    if (folder / "generation_config.json").is_file():
        model.generation_config = GenerationConfig.from_pretrained(str(folder))
    stored = model.language_model.lm_head.weight
    if stored.device.type == "cpu" and stored.dtype != torch.float32 and multiplies_slowly(stored.dtype):
        widen_products(model)
    return Checkpoint(model.eval(), processor, profile, folder)
