"""Memory and time at the published size: random bfloat16 weights in shards, loaded through our loader, one image, two
blocks.

    python scripts/full_size.py CONFIG [--work FOLDER] [--out FILE] [--keep]

CONFIG is a config.json of the published size (2.7 B parameters: about 5.4 GB of disk and 7 GB of memory). The random
checkpoint uses the package's character tokenizer, with its ids written into the configuration. Loading and decoding run
in a process of their own, so that the peak is theirs alone.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file

from mineru_diffusion.engine import CheckpointProfile, DecodingParams, LocalEngine, Request
from mineru_diffusion.model import (
    MinerUDiffusionConfig,
    MinerUDiffusionForConditionalGeneration,
    MinerUDiffusionProcessor,
)
from mineru_diffusion.model.checkpoint import load_checkpoint
from mineru_diffusion.model.images import ImageProcessor
from mineru_diffusion.synthesis.charset import CHARSET
from mineru_diffusion.training.tokenizer import CHAT_TEMPLATE, character_tokenizer

SHARD_BYTES = 1 << 30
IMAGE_SIZE = (112, 84)


def build(config_path: Path, folder: Path) -> int:
    """Write a random checkpoint; returns the bytes of its weights."""
    folder.mkdir(parents=True, exist_ok=True)
    processor = MinerUDiffusionProcessor(ImageProcessor(), character_tokenizer(CHARSET), CHAT_TEMPLATE)
    processor.save_pretrained(folder)
    vocabulary = processor.tokenizer.get_vocab()
    config = MinerUDiffusionConfig.from_dict(json.loads(config_path.read_text(encoding="utf-8")))
    for field, token in (
        ("mask_token_id", "<|MASK|>"),
        ("image_token_id", "<|image_pad|>"),
        ("video_token_id", "<|video_pad|>"),
        ("vision_start_token_id", "<|vision_start|>"),
        ("vision_end_token_id", "<|vision_end|>"),
    ):
        setattr(config, field, vocabulary[token])
    config.architectures = ["MinerUDiffusionForConditionalGeneration"]
    config.save_pretrained(str(folder))
    with torch.device("meta"):
        shapes = {name: t.shape for name, t in MinerUDiffusionForConditionalGeneration(config).state_dict().items()}
    generator = torch.Generator().manual_seed(0)
    weight_map: dict[str, str] = {}
    shard: dict[str, torch.Tensor] = {}
    total = number = 0

    def flush() -> None:
        nonlocal shard, number
        if shard:
            number += 1
            name = f"model-{number:05d}.safetensors"
            save_file(shard, str(folder / name), metadata={"format": "pt"})
            weight_map.update(dict.fromkeys(shard, name))
            shard = {}

    for name, shape in shapes.items():
        if name.endswith("norm.weight") or (".norm" in name and name.endswith("weight")) or "ln_q.weight" in name:
            tensor = torch.ones(shape, dtype=torch.bfloat16)
        else:
            tensor = torch.empty(shape, dtype=torch.bfloat16).normal_(0, 0.02, generator=generator)
        total += tensor.numel() * 2
        shard[name] = tensor
        if sum(t.numel() * 2 for t in shard.values()) > SHARD_BYTES:
            flush()
    flush()
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return total


def transcribe(folder: Path) -> dict[str, float]:
    """Load and decode two blocks, and say what that took."""
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    started = time.perf_counter()
    checkpoint = load_checkpoint(folder)
    loaded = time.perf_counter()
    after_load = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    profile = CheckpointProfile()
    tokens = 2 * profile.block_length
    image = Image.fromarray(np.random.default_rng(0).integers(0, 255, (*IMAGE_SIZE[::-1], 3), dtype=np.uint8))
    params = DecodingParams(threshold=0.0, max_tokens=tokens, stop_ids=(), repetition_guard=False)
    with LocalEngine(checkpoint) as engine:
        (result,) = engine.generate([Request(image, params=params)])
    if len(result.tokens) != tokens:
        raise SystemExit(f"decoded {len(result.tokens)} tokens instead of {tokens}: {result.error}")
    return {
        "parameters": sum(p.numel() for p in checkpoint.model.parameters()),
        "weights_bytes": sum(p.numel() * p.element_size() for p in checkpoint.model.parameters()),
        "process_before_bytes": base,
        "peak_after_load_bytes": after_load,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "load_seconds": loaded - started,
        "decode_seconds": time.perf_counter() - loaded,
        "visual_tokens": checkpoint.processor.image_processor.tokens(image),
        "tokens": len(result.tokens),
        "forward_passes": result.nfe,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path)
    parser.add_argument("--work", type=Path, help="where to put the random checkpoint (default: a temporary folder)")
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    parser.add_argument("--keep", action="store_true", help="keep the random checkpoint")
    parser.add_argument("--transcribe-only", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.transcribe_only:
        print(json.dumps(transcribe(arguments.work)))
        return
    work = arguments.work or Path(tempfile.mkdtemp(prefix="full-size-"))
    try:
        started = time.perf_counter()
        size = build(arguments.config, work)
        print(f"{size / 2**30:.2f} GiB of random weights in {time.perf_counter() - started:.0f} s", file=sys.stderr)
        command = [sys.executable, __file__, str(arguments.config), "--work", str(work), "--transcribe-only"]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        figures = json.loads(output.splitlines()[-1])
    finally:
        if not arguments.keep:
            shutil.rmtree(work, ignore_errors=True)
    figures["peak_over_weights"] = figures["peak_bytes"] / figures["weights_bytes"]
    for name, value in figures.items():
        print(f"{name:24} {value / 2**30:.2f} GiB" if name.endswith("bytes") else f"{name:24} {value:,.2f}")
    if arguments.out:
        arguments.out.write_text(json.dumps(figures, indent=2) + "\n")
    if figures["peak_over_weights"] > 1.3:
        raise SystemExit("the peak is above 1.3 times the weights")


if __name__ == "__main__":
    main()
