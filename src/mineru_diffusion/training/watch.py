"""Looks at held-out data while training goes on: the network as it stands, with its averaged weights, through the
engine that will run it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import torch
from PIL import Image

from mineru_diffusion.document.crops import fit_line
from mineru_diffusion.engine.local import LocalEngine
from mineru_diffusion.engine.types import DecodingParams, Request, Task
from mineru_diffusion.evaluation.lines import held_out_lines
from mineru_diffusion.model.checkpoint import Checkpoint
from mineru_diffusion.parsing.lines import close_crop
from mineru_diffusion.synthesis.shards import read_shards
from mineru_diffusion.training.config import LINES, TrainConfig
from mineru_diffusion.training.network import Parts
from mineru_diffusion.training.objective import TrainingModule
from mineru_diffusion.training.optim import Average
from mineru_diffusion.training.scoring import similarity
from mineru_diffusion.training.shards import prepare_image, shard_files, suits


@contextmanager
def averaged(module: TrainingModule, average: Average) -> Iterator[None]:
    """The module with its averaged weights, in evaluation mode; the weights are exchanged, not copied."""
    parameters = dict(module.named_parameters())

    def exchange() -> None:
        for name, shadow in average.shadow.items():
            parameters[name].data, average.shadow[name] = shadow, parameters[name].data

    training = module.training
    exchange()
    try:
        # Layers may be compiled for training's shapes; reading a few samples is not worth compiling them again.
        with torch.compiler.set_stance("force_eager"):
            module.eval()
            yield
    finally:
        exchange()
        module.train(training)


class Watcher:
    """Held-out samples, read again and again.

    Args:
        config: of the run.
        parts: the network that is trained, its processor and its profile.
    """

    def __init__(self, config: TrainConfig, parts: Parts) -> None:
        self.config, self.parts = config, parts
        self._samples: list[tuple[Image.Image, Task, str]] | None = None

    def samples(self) -> list[tuple[Image.Image, Task, str]]:
        """Pictures, tasks and truths: rendered held-out lines as long as training's longest, or the first of the
        held-out shards, or both."""
        if self._samples is None:
            self._samples = []
            config = self.config.evaluation
            wanted = max(config.samples if config.every else 0, config.show if config.show_every else 0)
            images, profile = self.parts.processor.image_processor, self.parts.profile
            if LINES in self.config.sources:
                longest = self.config.lines.max_chars
                for line, _ in held_out_lines(wanted, min_chars=min(10, longest), max_chars=longest):
                    picture = close_crop(Image.fromarray(line.image))
                    picture = fit_line(picture, height=profile.line_height, multiple=images.factor)
                    self._samples.append((picture, "text", line.text))
            if self.config.data.held_out:
                held_out = read_shards(shard_files(self.config.data.held_out))
                for sample in islice((s for s in held_out if suits(s, profile)), wanted):
                    self._samples.append((prepare_image(sample, profile, images.factor), sample.task, sample.target))
        return self._samples

    def read(self, samples: list[tuple[Image.Image, Task, str]]) -> list[str]:
        """What the network makes of them, greedily."""
        longest = max((len(truth) for _, _, truth in samples), default=0)
        params = DecodingParams(max_tokens=min(self.parts.profile.max_tokens, 2 * longest + 16))
        prompts = {**type(self.parts.profile)().prompts, **self.parts.profile.prompts}
        checkpoint = Checkpoint(self.parts.network, self.parts.processor, self.parts.profile, Path(self.config.name))
        with LocalEngine(checkpoint) as engine:
            results = engine.generate(
                [Request(image, task=task, prompt=prompts[task], params=params) for image, task, _ in samples]
            )
        return [result.text for result in results]

    def evaluate(self) -> dict[str, float]:
        """Mean similarity with the truth by task, and `score`, their mean; 1 is perfect."""
        samples = self.samples()
        found: dict[str, list[float]] = {}
        for (_, task, truth), reading in zip(samples, self.read(samples), strict=True):
            found.setdefault(task, []).append(similarity(task, reading, truth))
        means = {task: sum(values) / len(values) for task, values in found.items()}
        return means | {"score": sum(means.values()) / max(1, len(means))}

    def transcribe(self, step: int) -> list[tuple[str, str]]:
        """Truth and reading of a few samples, others at every call."""
        samples = self.samples()
        show = self.config.evaluation.show
        start = step // max(1, self.config.evaluation.show_every) * show
        chosen = [samples[(start + i) % len(samples)] for i in range(min(show, len(samples)))]
        return list(zip((truth for _, _, truth in chosen), self.read(chosen), strict=True))
