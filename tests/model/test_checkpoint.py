"""Each way in which a checkpoint can be wrong gives an error that names it and the cure."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel, AutoProcessor

from mineru_diffusion.errors import CheckpointError
from mineru_diffusion.model import MinerUDiffusionForConditionalGeneration, MinerUDiffusionProcessor
from mineru_diffusion.model.checkpoint import load_checkpoint
from mineru_diffusion.training.export import export_checkpoint
from tests.tiny import profile, random_model


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint") / "good"
    model, processor = random_model()
    export_checkpoint(model, processor, profile(), folder, torch.float32)
    return folder


@pytest.fixture
def copy(good: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(good, tmp_path / "copy"))


def edit_json(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    fields = json.loads(path.read_text())
    change(fields)
    path.write_text(json.dumps(fields))


def edit_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    tensors = load_file(str(folder / "model.safetensors"))
    change(tensors)
    save_file(tensors, str(folder / "model.safetensors"), metadata={"format": "pt"})


def test_round_trip(good: Path) -> None:
    model, _ = random_model()
    loaded = load_checkpoint(good)
    assert loaded.profile == profile()
    for name, tensor in model.state_dict().items():
        assert torch.equal(loaded.model.state_dict()[name], tensor), name
    ids = torch.arange(40, 60)[None]
    with torch.no_grad():
        assert torch.equal(loaded.model(input_ids=ids).logits, model(input_ids=ids).logits)


def test_auto_classes_need_no_remote_code(good: Path) -> None:
    config = AutoConfig.from_pretrained(str(good))
    assert config.model_type == "mineru_diffusion"
    model = AutoModel.from_pretrained(str(good))
    assert isinstance(model, MinerUDiffusionForConditionalGeneration)
    processor = AutoProcessor.from_pretrained(str(good))
    assert isinstance(processor, MinerUDiffusionProcessor)
    # The checkpoint's own decoding settings come with the model.
    assert getattr(model.generation_config, "mineru_diffusion")["block_length"] == 8  # noqa: B009
    ids = torch.arange(40, 60)[None]
    with torch.no_grad():
        torch.testing.assert_close(model.float()(input_ids=ids).logits, random_model()[0](input_ids=ids).logits)


def test_only_the_published_parts_are_exported(good: Path) -> None:
    roots = {name.split(".")[0] for name in load_file(str(good / "model.safetensors"))}
    assert roots == {"vision_model", "vision_abstractor", "language_model"}


def test_dtype_is_kept_or_changed(good: Path, tmp_path: Path) -> None:
    model, processor = random_model()
    half = tmp_path / "half"
    export_checkpoint(model, processor, profile(), half, torch.float16)
    assert {t.dtype for t in load_checkpoint(half).model.state_dict().values()} == {torch.float16}
    assert {t.dtype for t in load_checkpoint(half, dtype=torch.float32).model.parameters()} == {torch.float32}


def test_shards(good: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(good, tmp_path / "sharded"))
    tensors = load_file(str(folder / "model.safetensors"))
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    weight_map = {}
    for number, part in enumerate((names[::2], names[1::2])):
        file = f"model-{number + 1:05d}-of-00002.safetensors"
        save_file({name: tensors[name] for name in part}, str(folder / file))
        weight_map |= dict.fromkeys(part, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    assert torch.equal(
        load_checkpoint(folder).model.language_model.lm_head.weight, tensors["language_model.lm_head.weight"]
    )
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"model-00002-of-00002\.safetensors missing"):
        load_checkpoint(folder)


def test_missing_and_unknown_tensors(copy: Path) -> None:
    def rename(tensors: dict[str, torch.Tensor]) -> None:
        tensors["model.norm"] = tensors.pop("language_model.model.norm.weight")

    edit_weights(copy, rename)
    with pytest.raises(CheckpointError, match=r"1 missing tensors \(language_model.model.norm.weight\) and 1 unknown"):
        load_checkpoint(copy)


def test_wrong_shapes(copy: Path) -> None:
    edit_json(copy / "config.json", lambda fields: fields["text_config"].update(intermediate_size=32))
    with pytest.raises(CheckpointError, match=r"other shapes.*\[96, 64\] instead of \[32, 64\]"):
        load_checkpoint(copy)


@pytest.mark.parametrize(("field", "token"), [("mask_token_id", "MASK"), ("image_token_id", "image_pad")])
def test_ids_that_disagree_with_the_tokenizer(copy: Path, field: str, token: str) -> None:
    edit_json(copy / "config.json", lambda fields: fields.update({field: 3}))
    with pytest.raises(CheckpointError, match=rf"{field} 3 but the tokenizer's <\|{token}\|> is"):
        load_checkpoint(copy)


def test_vocabulary_smaller_than_the_tokenizer(copy: Path) -> None:
    edit_json(copy / "config.json", lambda fields: fields["text_config"].update(vocab_size=48))
    with pytest.raises(CheckpointError, match="vocab_size is 48"):
        load_checkpoint(copy)


@pytest.mark.parametrize("name", ["mlp", "patch_merger9"])
def test_unknown_projector(copy: Path, name: str) -> None:
    edit_json(copy / "config.json", lambda fields: fields.update(vision_projector_type=name))
    with pytest.raises(CheckpointError, match=f"unknown vision_projector_type '{name}'"):
        load_checkpoint(copy)


def test_projector_that_disagrees_with_the_merge(copy: Path) -> None:
    edit_json(copy / "config.json", lambda fields: fields.update(vision_projector_type="patch_merger4x"))
    with pytest.raises(CheckpointError, match="disagrees with"):
        load_checkpoint(copy)


def test_another_model(copy: Path) -> None:
    edit_json(copy / "config.json", lambda fields: fields.update(model_type="llama"))
    with pytest.raises(CheckpointError, match="'llama'"):
        load_checkpoint(copy)


@pytest.mark.parametrize(
    "name", ["config.json", "model.safetensors", "preprocessor_config.json", "chat_template.jinja"]
)
def test_a_missing_file(copy: Path, name: str) -> None:
    (copy / name).unlink()
    if name == "chat_template.jinja":
        edit_json(copy / "tokenizer_config.json", lambda fields: fields.pop("chat_template", None))
    with pytest.raises(CheckpointError):
        load_checkpoint(copy)


@pytest.mark.parametrize(
    "name", ["config.json", "generation_config.json", "preprocessor_config.json", "model.safetensors"]
)
def test_a_damaged_file(copy: Path, name: str) -> None:
    path = copy / name
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(CheckpointError, match=name):
        load_checkpoint(copy)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"config.json"):
        load_checkpoint(tmp_path / "nothing")


def test_a_checkpoint_without_the_section_is_the_published_one(copy: Path) -> None:
    edit_json(copy / "generation_config.json", lambda fields: fields.pop("mineru_diffusion"))
    loaded = load_checkpoint(copy)
    assert loaded.profile.block_length == 32
    assert loaded.profile.text_unit == "region"
    assert loaded.profile.tasks == ("text", "table", "formula", "layout")
