"""Cut the full parity kit down to the copy that lives in tests/parity/data.

python scripts/trim_parity_kit.py KIT [OUT]
"""

from __future__ import annotations

import gzip
import json
import shutil
import sys
from pathlib import Path

from safetensors.torch import load_file, save_file

CASES = ("img28x28", "img84x56", "text_only", "two_images")


def main(kit: Path, out: Path) -> None:
    shutil.rmtree(out, ignore_errors=True)
    (out / "cases").mkdir(parents=True)
    shutil.copytree(kit / "checkpoint", out / "checkpoint")
    for name in ("config_full.json", "keys_full.json"):
        shutil.copy(kit / name, out / name)
    for case in CASES:
        tensors = load_file(str(kit / "cases" / f"{case}.safetensors"))
        # One prompt block length's logits of later steps are enough: the runs below cover the decoding.
        later = ("block0_step1", "block0_commit", "block1")
        kept = {name: tensor for name, tensor in tensors.items() if not name.startswith(later)}
        save_file(kept, str(out / "cases" / f"{case}.safetensors"))
    rows = [json.loads(line) for line in (kit / "cases" / "runs.jsonl").read_text(encoding="utf-8").splitlines()]
    lines = []
    for row in rows:
        if row["case"] not in CASES or row["sampler"] != "greedy_patch" or "/quirk_" in row["id"] or row.get("error"):
            continue
        row.pop("forwards")
        for step in row["steps"] or []:
            for field in ("forward", "gap", "all_tok", "all_prob", "tok"):
                step.pop(field, None)
        lines.append(json.dumps(row, separators=(",", ":")))
    (out / "cases" / "runs.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode(), mtime=0))
    size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    print(f"{out}: {size / 2**20:.2f} MiB, {len(CASES)} cases, {len(lines)} runs")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else Path("tests/parity/data"))
