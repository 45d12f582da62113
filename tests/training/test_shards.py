"""Training from shards: packing, resuming, and each full-size configuration at a small size on a published-format
checkpoint."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from mineru_diffusion.engine import DecodingParams, LocalEngine, Request
from mineru_diffusion.engine.types import Task
from mineru_diffusion.errors import UsageError
from mineru_diffusion.model.checkpoint import load_checkpoint
from mineru_diffusion.synthesis.sample import Sample
from mineru_diffusion.synthesis.shards import write_shards
from mineru_diffusion.training.lora import merge_weights
from mineru_diffusion.training.shards import SampleEncoder, ShardChunks, pack
from mineru_diffusion.training.state import STATE, read_state
from mineru_diffusion.training.trainer import train
from tests.tiny import profile, random_model
from tests.training.small import config, losses

PUBLISHED = Path(__file__).parents[1] / "parity" / "data" / "checkpoint"
CONFIGS = Path(__file__).parents[2] / "configs"
TARGETS: dict[Task, str] = {
    "text": "one line",
    "table": "<fcel>a<fcel>b<nl><fcel>1<ecel><nl>",
    "formula": r"\frac{a}{b}",
    "layout": "<|box_start|>10 20 300 400<|box_end|><|ref_start|>text<|ref_end|><|rotate_up|>",
}


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two shards of small pictures of all tasks, of several sizes."""
    folder = tmp_path_factory.mktemp("shards")
    rng = np.random.default_rng(0)
    for part in range(2):
        samples = [
            Sample(
                rng.integers(0, 256, (int(rng.integers(28, 70)), int(rng.integers(60, 150)), 3), dtype=np.uint8),
                task,
                TARGETS[task] * int(rng.integers(1, 3)),
                source={"generator": "test", "index": number},
            )
            for number, task in enumerate([*TARGETS] * 3)
        ]
        write_shards(samples, folder / f"part{part}")
    return folder


def overrides(shards: Path) -> list[str]:
    """Size overrides under which a full-size configuration runs here."""
    return [
        f"checkpoint={PUBLISHED}",
        f"data={{mixture: {{{shards}: 1.0}}, held_out: {shards}, workers: 0, chunk: 8, max_visual: 40}}",
        "batch_positions=700",
        "accumulate=2",
        "log_every=1",
        "device=cpu",
        "export_dtype=float32",
        "optimizer.warmup_steps=1",
    ]


@given(st.lists(st.integers(1, 50), max_size=30))
def test_packing_keeps_all_within_the_budget(costs: list[int]) -> None:
    numbered = sorted((cost, number) for number, cost in enumerate(costs))
    groups = pack(numbered, 50)
    assert [number for group in groups for number in group] == [number for _, number in numbered]
    assert all(sum(costs[number] for number in group) <= 50 for group in groups)


def test_encoding_ends_and_fills_answers_and_shows_pictures_as_the_parser_does() -> None:
    _, processor = random_model()
    encoder = SampleEncoder(processor, profile(8), 8)
    grey = np.full((50, 400), 255, dtype=np.uint8)
    line = encoder(Sample(grey, "text", "ab c"))
    tokens = processor.tokenizer.convert_ids_to_tokens(line.answer)
    assert tokens == ["a", "b", " ", "c", "<|im_end|>", "<|endoftext|>", "<|endoftext|>", "<|endoftext|>"]
    assert line.length == 5
    assert line.image.shape[0] == 32
    assert line.line == b"ab c"
    prompt = processor.tokenizer.convert_ids_to_tokens(line.prompt)
    assert prompt.count("<|image_pad|>") == line.image.shape[0] * line.image.shape[1] // 256
    assert "\nText Recognition:" in prompt
    page = encoder(Sample(grey, "layout", TARGETS["layout"]))
    assert page.line is None
    assert "\nLayout Detection:" in processor.tokenizer.convert_ids_to_tokens(page.prompt)
    table = encoder(Sample(grey, "table", "<fcel>a<nl>"))
    assert processor.tokenizer.convert_ids_to_tokens(table.answer[:4]) == ["<fcel>", "a", "<nl>", "<|im_end|>"]


def test_chunks_cover_every_sample_each_epoch_and_do_not_depend_on_the_start(shards: Path) -> None:
    loaded = load_checkpoint(PUBLISHED)
    encoder = SampleEncoder(loaded.processor, loaded.profile, 32)
    chunks = ShardChunks(shards, encoder, seed=1, chunk=5, budget=3000)
    assert len(chunks.spans) == 6
    per_epoch = [[len(b.samples) for n in range(e, e + 6) for b in chunks.make_chunk(n)] for e in (0, 6)]
    # All but the six layouts: a page has more positions than the budget.
    assert [sum(sizes) for sizes in per_epoch] == [18, 18]
    late = iter(ShardChunks(shards, encoder, seed=1, start=7, chunk=5, budget=3000))
    number, batches = next(late)
    expected = chunks.make_chunk(7)
    assert number == 7
    assert [[s.answer for s in b.samples] for b in batches] == [[s.answer for s in b.samples] for b in expected]
    with pytest.raises(UsageError, match="no sample fits"):
        list(islice(ShardChunks(shards, encoder, seed=1, budget=10), 9))


def test_readers_of_lines_are_not_trained_on_paragraphs(tmp_path: Path) -> None:
    _, processor = random_model()
    grey = np.full((40, 200), 128, dtype=np.uint8)
    samples = [
        Sample(grey, "text", "line"),
        Sample(grey, "text", "two\nlines"),
        Sample(grey, "text", "a paragraph", source={"lines": 2}),
        Sample(grey, "table", "<fcel>a<nl><fcel>b<nl>"),
    ]
    write_shards(samples, tmp_path)
    for unit, expected in (("line", 2), ("region", 4)):
        encoder = SampleEncoder(processor, replace(profile(8), text_unit=unit), 8)
        found = ShardChunks(tmp_path, encoder, seed=1).make_chunk(0)
        assert sum(len(batch.samples) for batch in found) == expected


def test_no_shards(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no shards there"):
        train(config(tmp_path), tmp_path / "run", overrides=[f"data.mixture={{{tmp_path / 'x'}: 1}}"], quiet=True)


@pytest.mark.parametrize("name", ["full_stage1", "full_stage2", "lora"])
def test_full_size_configurations_train_resume_export_and_read(name: str, shards: Path, tmp_path: Path) -> None:
    path, out = CONFIGS / f"{name}.yaml", tmp_path / "run"
    settings = [*overrides(shards), "evaluation={every: 3, samples: 2}"]
    if name == "lora":
        settings.append("optimizer.schedule=constant")
    train(path, out, overrides=[*settings, "max_steps=2"], quiet=True)
    train(path, out, overrides=[*settings, "max_steps=3"], resume=True, quiet=True)
    records = losses(out)
    assert [record["step"] for record in records] == [1, 2, 3]
    assert all(np.isfinite(record["loss"]) for record in records)
    if name == "lora":
        # With dropout, which must go on as well; a constant rate, because a cosine depends on the last step.
        whole = [*settings, "max_steps=3", "evaluation.every=0"]
        train(path, tmp_path / "whole", overrides=whole, quiet=True)
        assert records == losses(tmp_path / "whole")
    (figures,) = [json.loads(line) for line in (out / "evaluation.jsonl").read_text().splitlines()]
    assert set(figures) >= {"step", "score"}
    checkpoint = load_checkpoint(out / "checkpoint")
    before = load_checkpoint(PUBLISHED).model.state_dict()
    changed = [k for k, v in checkpoint.model.state_dict().items() if not torch.equal(v, before[k])]
    assert changed
    if name == "lora":
        assert all("layers" in key or "vision_abstractor" in key for key in changed)
    with LocalEngine(checkpoint) as engine:
        picture = Image.new("RGB", (96, 32), "white")
        (result,) = engine.generate([Request(picture, params=DecodingParams(max_tokens=8))])
    assert result.finish_reason != "error"


def test_the_adapter_is_what_peft_reads(shards: Path, tmp_path: Path) -> None:
    from peft import PeftModel

    settings = [*overrides(shards), "max_steps=2", "optimizer.ema=0", "evaluation.every=0", "precision=float32"]
    train(CONFIGS / "lora.yaml", tmp_path / "run", overrides=settings, quiet=True)
    state = read_state(tmp_path / "run" / STATE)
    assert state["module"]
    assert all("lora_" in name for name in state["module"])
    base = load_checkpoint(PUBLISHED, dtype=torch.float32).model
    merged = PeftModel.from_pretrained(base, str(tmp_path / "run" / "adapter")).merge_and_unload()
    for name, tensor in load_checkpoint(tmp_path / "run" / "checkpoint").model.state_dict().items():
        torch.testing.assert_close(merged.state_dict()[name], tensor, atol=1e-6, rtol=1e-5)


def test_merging_is_the_formula() -> None:
    from mineru_diffusion.training.config import LoraConfig

    weight, a, b = torch.randn(4, 6), torch.randn(2, 6), torch.randn(4, 2)
    found = merge_weights(
        {
            "x.base_layer.weight": weight,
            "x.base_layer.bias": torch.ones(4),
            "x.lora_A.default.weight": a,
            "x.lora_B.default.weight": b,
            "y.weight": weight,
        },
        LoraConfig(rank=2, alpha=6),
    )
    assert set(found) == {"x.weight", "x.bias", "y.weight"}
    torch.testing.assert_close(found["x.weight"], weight + 3 * b @ a)


def test_lines_and_shards_mix_by_their_shares(shards: Path, tmp_path: Path) -> None:
    """And with the CTC head, whose weights stay behind at export."""
    out = tmp_path / "run"
    mixture = [f"data={{mixture: {{lines: 1.0, {shards}: 1.0}}, workers: 0}}", "helpers.ctc=0.5", "max_pixels=4096"]
    train(config(tmp_path, steps=8), out, overrides=[*mixture, "log_every=8", "batch_positions=900"], quiet=True)
    (record,) = losses(out)
    assert {"loss", "slots", f"{shards.stem}/loss"} <= set(record)
    state = read_state(out / STATE)
    assert set(state["progress"]["positions"]) == {"lines", str(shards)}
    assert any(name.startswith("ctc.") for name in state["module"])
    assert not any("ctc" in name for name in load_checkpoint(out / "checkpoint").model.state_dict())
