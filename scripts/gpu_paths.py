"""The engine's attention kernels, with CUDA graphs and without, with the vision tower between passes and beside them,
on crops of which a quarter run at a time: tokens a second, and whether all read the same. scripts/gpu_check.sh runs it;
on a CPU, where graphs only have their shapes, it shows that it works."""

from __future__ import annotations

import argparse
from functools import partial
from itertools import product
from pathlib import Path

from mineru_diffusion.benchmarks.common import Turns, race, text_crops
from mineru_diffusion.engine import Request, Result, load_engine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="checkpoint folder; the packaged one if left out")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--crops", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    expected: list[Result] = []
    ways = product(("sdpa", "flex"), (False, True), (False, True))
    for kernel, graphs, overlap in ways:
        with load_engine(
            arguments.model,
            device=arguments.device,
            kernel=kernel,
            graphs=graphs,
            overlap=overlap,
            max_rows=max(1, arguments.crops // 4),
        ) as engine:
            crops = text_crops(engine.profile, engine.image_factor, arguments.crops)
            requests = [Request(image) for image in crops.images]
            read, turns = {"": partial(engine.generate, requests)}, Turns(1 + arguments.rounds, None)
            first = race(read, 1, turns, warm=False)[""].wall
            before = engine.stats()
            usual = race(read, arguments.rounds, turns, warm=False)[""].wall
            stats = engine.stats().since(before)
            results = engine.generate(requests)
        expected = expected or results
        same = sum(a.tokens == b.tokens for a, b in zip(results, expected, strict=True))
        tokens = sum(len(result.tokens) for result in results)
        print(
            f"{kernel:5} graphs {_on(graphs)} overlap {_on(overlap)} {tokens / usual:9.0f} tokens/s  "
            f"first {first:6.2f} s  {stats.graphed}/{stats.passes} passes from graphs  "
            f"{stats.images_beside}/{stats.images} images beside passes  same tokens {same}/{len(results)}",
            flush=True,
        )


def _on(value: bool) -> str:
    return "on " if value else "off"


if __name__ == "__main__":
    main()
