"""The parity table: tensors, tokens, step maps and forward passes, ours against the public implementation's.

python scripts/parity_report.py [--out FILE]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.parity import kit
from tests.parity.test_runs import RUNS, decode_alone, expected_tokens

from mineru_diffusion.diffusion.masks import block_causal_mask
from mineru_diffusion.model.checkpoint import Checkpoint, load_checkpoint

LENGTHS = (4, 8, 32)


def tensor_differences(checkpoint: Checkpoint) -> dict[str, float]:
    """Largest absolute difference of each kind of tensor over all cases."""
    model = checkpoint.model
    worst: dict[str, float] = defaultdict(float)

    def compare(name: str, actual: torch.Tensor, expected: torch.Tensor) -> None:
        worst[name] = max(worst[name], float((actual - expected).abs().max()))

    for case in kit.cases():
        if case == "batch2":
            continue
        tensors = kit.tensors(case)
        visual = None
        if "pixel_values" in tensors:
            features = model.vision_model(tensors["pixel_values"], tensors["image_grid_thw"])
            visual = model.vision_abstractor(features)
            compare("vision features", features, tensors["vision_features"])
            compare("projected", visual, tensors["projected"])
        embeds = model.embed(tensors["input_ids"], visual)
        compare("input embeddings", embeds, tensors["inputs_embeds"])
        length = embeds.shape[1]
        for block in LENGTHS:
            logits = model(inputs_embeds=embeds, block_length=block).logits[0]
            tail = tensors[f"prompt_logits_b{block}"]
            compare(f"prompt logits, block {block}", logits[-tail.shape[0] :], tail)
            mask = block_causal_mask(length + 64, length, block)
            compare("masks", mask.float(), tensors[f"mask_P_plus_64_b{block}"].float())
    return dict(worst)


def decoding(checkpoint: Checkpoint) -> dict[int, dict[str, int]]:
    """By block length: runs, runs with equal tokens and step maps, forward passes of both sides."""
    rows: dict[int, dict[str, int]] = defaultdict(lambda: dict.fromkeys(("runs", "equal", "ours", "reference"), 0))
    for run in RUNS:
        result = decode_alone(checkpoint, run)
        tokens = expected_tokens(run)
        row = rows[run["params"]["block_length"]]
        row["runs"] += 1
        row["equal"] += list(result.tokens) == tokens and list(result.steps) == run["step_map"][: len(tokens)]
        row["ours"] += result.nfe
        row["reference"] += run["n_forward"]
    return dict(rows)


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    arguments = parser.parse_args()
    console = Console()
    checkpoint = load_checkpoint(kit.checkpoint())
    checkpoint.model.vision_model.patch_embed.as_convolution = True
    differences = tensor_differences(checkpoint)
    table = Table("tensor", "largest difference", title="Tensors (fp32, all cases)")
    for name, value in differences.items():
        table.add_row(name, f"{value:.1e}")
    console.print(table)
    runs = decoding(checkpoint)
    table = Table("block", "runs", "equal", "passes, ours", "passes, reference", "ratio", title="Decoding (greedy)")
    for block, row in sorted(runs.items()):
        ratio = f"{row['ours'] / row['reference']:.2f}"
        table.add_row(str(block), *(str(row[key]) for key in ("runs", "equal", "ours", "reference")), ratio)
    console.print(table)
    if arguments.out:
        arguments.out.write_text(json.dumps({"tensors": differences, "decoding": runs}, indent=2) + "\n")
    if max(differences.values()) > 1e-4 or any(row["runs"] != row["equal"] for row in runs.values()):
        raise SystemExit("parity is broken")


if __name__ == "__main__":
    main()
