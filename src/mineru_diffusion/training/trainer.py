"""The training loop: batches in, checkpoints out. Resumable at any step, and ends cleanly at a time limit.

Accelerate instead of transformers' Trainer: the loop needs two optimizers, batches that grow, and a loss with many
named parts, which Trainer would take in by overriding most of it; Accelerate still gives devices, mixed precision,
gradient clipping and many processes.
"""

from __future__ import annotations

import json
import math
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from mineru_diffusion.errors import MissingExtra, UsageError
from mineru_diffusion.model.checkpoint import load_checkpoint
from mineru_diffusion.training.config import TrainConfig, load_config
from mineru_diffusion.training.data import SLOT_WIDTH, LineBatch, LineChunks, batches
from mineru_diffusion.training.export import export_checkpoint, line_profile, new_network, new_processor
from mineru_diffusion.training.objective import Inputs, TrainingModule
from mineru_diffusion.training.optim import Average, build_optimizers, schedule, set_rate

try:
    from accelerate import Accelerator
except ImportError as error:
    raise MissingExtra("training", "train") from error

STATE = "state.pt"


@dataclass
class Progress:
    """Where a run stands: optimizer steps, samples, the next (chunk, batch) of the data, how long lines are, and the
    figures since the last log line."""

    step: int = 0
    samples: int = 0
    chunk: int = 0
    batch: int = 0
    max_chars: int = 0
    seconds: float = 0.0
    since_growth: int = 0
    window: dict[str, list[float]] = field(default_factory=dict)


class StopRequest:
    """Notes the first SIGINT or SIGTERM, so that a run ends between two steps; a second one ends it at once. Background
    jobs ignore Ctrl-C, and batch systems send SIGTERM, hence both."""

    def __init__(self) -> None:
        self.requested = False
        self._handlers: dict[int, Any] = {}

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():
            self._handlers = {number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def _note(self, *_: object) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)


class Trainer:
    """One run.

    Args:
        config: what to train.
        out: folder of this run: `state.pt` (to resume), `log.jsonl`, `checkpoint/` (published format).
        resume: go on from `out/state.pt` if it is there.
        quiet: no progress on the terminal.

    Raises:
        UsageError: `out` already holds a run and `resume` was not asked for, or `init_from` holds none.
    """

    def __init__(self, config: TrainConfig, out: Path, *, resume: bool = False, quiet: bool = False) -> None:
        self.config, self.out = config, out
        state_path = out / STATE
        if state_path.exists() and not resume:
            raise UsageError(f"{out} already holds a run; pass --resume to go on, or choose another folder")
        out.mkdir(parents=True, exist_ok=True)
        self.console = Console(stderr=True, quiet=quiet)
        self.accelerator = Accelerator(cpu=config.device == "cpu")
        if self.accelerator.num_processes > 1:
            raise UsageError("training runs in one process for now; start it without a launcher")
        torch.manual_seed(config.seed)
        self.processor = new_processor(config.network)
        network = new_network(config.network, self.processor)
        network.init_for_training(config.seed)
        token_px = config.network.patch_size * config.network.merge
        self.module = TrainingModule(network, config.diffusion, config.helpers, token_px // SLOT_WIDTH)
        if config.init_from and not state_path.exists():
            self._init_from(Path(config.init_from))
        if config.freeze_vision:
            for part in (network.vision_model, network.vision_abstractor, self.module.heads):
                part.requires_grad_(False)
        self.average = Average(self.module, config.optimizer.ema)
        self.optimizers = build_optimizers(self.module, config.optimizer)
        self.progress = Progress(max_chars=config.grow_from or config.lines.max_chars)
        if state_path.exists():
            self._load_state(torch.load(state_path, map_location="cpu", weights_only=False))
        if config.compile:
            for layer in (*network.vision_model.blocks, *network.language_model.model.layers):
                layer.compile(dynamic=True)
        prepared = self.accelerator.prepare(self.module, *self.optimizers)
        self.wrapped, self.optimizers = prepared[0], list(prepared[1:])
        self.device = self.accelerator.device
        for name, tensor in self.average.shadow.items():
            self.average.shadow[name] = tensor.to(self.device)
        self.prompts: dict[int, torch.Tensor] = {}
        self.token_px = token_px

    # -- state ---------------------------------------------------------------------------------------------------------

    def _init_from(self, source: Path) -> None:
        """Start from another run's average (what it would have exported), or from an exported checkpoint, which has no
        helper heads: those start anew then."""
        if (source / STATE).is_file():
            weights = torch.load(source / STATE, map_location="cpu", weights_only=False)["average"]["shadow"]
        elif (source / "config.json").is_file():
            loaded = load_checkpoint(source, dtype=torch.float32).model.state_dict()
            weights = {f"network.{name}": tensor for name, tensor in loaded.items()}
        else:
            raise UsageError(f"init_from: {source} holds neither a run nor a checkpoint; train that stage first")
        own = self.module.state_dict()
        wrong = [name for name in own if name.startswith("network.") and name not in weights]
        wrong += [name for name, tensor in weights.items() if name not in own or own[name].shape != tensor.shape]
        if wrong:
            raise UsageError(
                f"init_from: {source} holds another network than the configuration describes (e.g. {wrong[0]})"
            )
        self.module.load_state_dict(weights, strict=False)

    def _load_state(self, state: dict[str, Any]) -> None:
        try:
            self.module.load_state_dict(state["module"])
            self.average.load_state_dict(state["average"])
            for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
                settings = [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]
                optimizer.load_state_dict(saved)
                # The configuration wins, so that a run can be resumed with other rates.
                for group, own in zip(optimizer.param_groups, settings, strict=True):
                    group.update(own)
        except (KeyError, RuntimeError, ValueError) as error:
            raise UsageError(
                f"{self.out}: its state belongs to another configuration ({error}); use the one it was started with, "
                "or start a new run with init_from"
            ) from error
        self.progress = Progress(**state["progress"])
        if not self.config.grow_from:
            self.progress.max_chars = self.config.lines.max_chars

    def save(self) -> None:
        """Write the state and the exported average; both are replaced whole."""
        if not self.accelerator.is_main_process:
            return
        module = self.accelerator.unwrap_model(self.wrapped)
        state = {
            "module": module.state_dict(),
            "average": self.average.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "progress": asdict(self.progress),
            "config": asdict(self.config),
        }
        draft = self.out / f"{STATE}.new"
        torch.save(state, draft)
        os.replace(draft, self.out / STATE)
        if self.config.stage == "joint":
            averaged = new_network(self.config.network, self.processor)
            prefix = "network."
            averaged.load_state_dict(
                {k[len(prefix) :]: v.cpu() for k, v in self.average.shadow.items() if k.startswith(prefix)}
            )
            export_checkpoint(averaged, self.processor, line_profile(self.config), self.out / "checkpoint")

    # -- data ----------------------------------------------------------------------------------------------------------

    def _batches(self) -> Iterator[tuple[int, int, LineBatch]]:
        lines, progress = self.config.lines, self.progress
        data = LineChunks(
            self.processor.tokenizer,
            seed=self.config.seed,
            start=(progress.chunk, progress.batch),
            min_chars=min(lines.min_chars, progress.max_chars),
            max_chars=progress.max_chars,
            degrade=lines.degrade,
            chunk=lines.chunk,
            budget=self.config.batch_positions,
            token_px=self.token_px,
            patch_px=self.config.network.patch_size,
            block_length=self.config.diffusion.block_length,
            draws=self.config.diffusion.draws if self.config.stage == "joint" else 0,
        )
        return batches(data, lines.workers)

    def inputs(self, batch: LineBatch) -> Inputs:
        """Move a batch to the device; pixels become patch rows there, from one byte a pixel."""
        count = batch.columns * (batch.images.shape[1] // self.token_px)
        if count not in self.prompts:
            prompt = self.processor.prompt(line_profile(self.config).prompts["text"])
            self.prompts[count] = torch.tensor(self.processor.expand(prompt, [count]), device=self.device)
        images = batch.images.numpy()
        rows = self.processor.image_processor.patch_rows_grey(images)
        patch = self.config.network.patch_size
        grid = (1, images.shape[1] // patch, images.shape[2] // patch)

        def move(tensor: torch.Tensor) -> torch.Tensor:
            return tensor.to(self.device, non_blocking=True)

        return Inputs(
            prompt=self.prompts[count],
            pixels=move(torch.from_numpy(rows)),
            grid=[grid] * images.shape[0],
            answers=move(batch.answers),
            lengths=move(batch.lengths),
            slots=move(batch.slots),
            counts=move(batch.counts),
            alignment=move(batch.alignment),
        )

    # -- the loop ------------------------------------------------------------------------------------------------------

    def run(self, time_limit_minutes: float | None = None) -> Progress:
        """Train until `max_steps` or the time limit, and save.

        Raises:
            KeyboardInterrupt: Ctrl-C or SIGTERM; the state after the last whole step is saved.
        """
        config, progress = self.config, self.progress
        source = self._batches()
        with StopRequest() as stop, (self.out / "log.jsonl").open("a", encoding="utf-8") as log:
            started = last_save = last_log = time.monotonic()
            samples_at_log = progress.samples
            while progress.step < config.max_steps and not stop.requested:
                chunk, number, batch = next(source)
                parts = self._step(self.inputs(batch))
                progress.step += 1
                progress.samples += len(batch.texts)
                progress.chunk, progress.batch = chunk, number + 1
                for name, value in parts.items():
                    progress.window.setdefault(name, []).append(value)
                now = time.monotonic()
                if progress.step % config.log_every == 0:
                    means = {name: sum(values) / len(values) for name, values in progress.window.items()}
                    progress.window.clear()
                    rate = (progress.samples - samples_at_log) / (now - last_log)
                    progress.seconds += now - last_log
                    last_log, samples_at_log = now, progress.samples
                    self._log(log, means, rate)
                    if self._grow(means):
                        source = self._batches()
                if time_limit_minutes is not None and now - started > time_limit_minutes * 60:
                    break
                if now - last_save > config.save_minutes * 60:
                    self.save()
                    last_save = time.monotonic()
            self.save()
        if stop.requested:
            raise KeyboardInterrupt
        return progress

    def _step(self, inputs: Inputs) -> dict[str, float]:
        config = self.config
        generator = torch.Generator().manual_seed(config.seed * 1_000_003 + self.progress.step)
        self.wrapped.train()
        losses = self.wrapped(
            inputs, generator, vision_only=config.stage == "vision", freeze_vision=config.freeze_vision
        )
        self.accelerator.backward(losses.total)
        norm = self.accelerator.clip_grad_norm_(
            [p for p in self.wrapped.parameters() if p.grad is not None], config.optimizer.clip
        )
        if not math.isfinite(float(norm)):
            # One bad batch must not ruin the weights.
            for optimizer in self.optimizers:
                optimizer.zero_grad(set_to_none=True)
            return {"skipped": 1.0}
        set_rate(self.optimizers, schedule(self.progress.step, config.optimizer, config.max_steps))
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.average.update(self.accelerator.unwrap_model(self.wrapped))
        return {name: float(value) for name, value in (losses.parts | {"norm": norm}).items()}

    def _grow(self, means: dict[str, float]) -> bool:
        """Widen the lines once the loss is low; the next chunk then has the new length."""
        config, progress = self.config, self.progress
        progress.since_growth += 1
        watched = means.get("loss", means.get("slots", float("inf")))
        longest = config.lines.max_chars
        if progress.max_chars >= longest or not watched <= config.grow_below or progress.since_growth < 2:
            return False
        progress.max_chars = min(longest, progress.max_chars + config.grow_by)
        progress.since_growth = 0
        progress.chunk, progress.batch = progress.chunk + 1, 0
        self.console.print(f"lines grow to {progress.max_chars} characters")
        return True

    def _log(self, log: Any, means: dict[str, float], rate: float) -> None:
        progress = self.progress
        record = {
            "step": progress.step,
            "samples": progress.samples,
            "max_chars": progress.max_chars,
            "minutes": round(progress.seconds / 60, 2),
            "lines_per_second": round(rate, 1),
            **{name: round(value, 4) for name, value in means.items()},
        }
        log.write(json.dumps(record) + "\n")
        log.flush()
        self.console.print("  ".join(f"{name} {value:g}" for name, value in record.items()), highlight=False)


def train(
    config_path: Path | str,
    out: Path | str,
    *,
    resume: bool = False,
    overrides: list[str] | None = None,
    time_limit_minutes: float | None = None,
    quiet: bool = False,
) -> Progress:
    """Train by a YAML configuration; see `Trainer`.

    Raises:
        UsageError: an unknown key, or folders that are not as `resume` says.
    """
    config = load_config(config_path, overrides)
    if config.device == "auto" and not torch.cuda.is_available():
        config = replace(config, device="cpu")
    return Trainer(config, Path(out), resume=resume, quiet=quiet).run(time_limit_minutes)
