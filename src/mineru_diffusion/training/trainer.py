"""The training loop: batches in, checkpoints out. Resumable at any step, and ends cleanly at a time limit.

Accelerate instead of transformers' Trainer: the loop needs two optimizers, batches that grow, and a loss with many
named parts, which Trainer would take in by overriding most of it; Accelerate still gives devices, mixed precision,
gradient clipping and many processes.

One step is `accumulate` batches of one global sequence of batches, whose losses are averaged; process r of W takes
every W-th of them. So a run on two processes equals a run on one with the same `accumulate`.
"""

from __future__ import annotations

import contextlib
import math
import time
from dataclasses import replace
from pathlib import Path

import torch
from rich.console import Console
from torch import Tensor

from mineru_diffusion.errors import MissingExtra, UsageError
from mineru_diffusion.training.config import LINES, TrainConfig
from mineru_diffusion.training.config_file import load_config
from mineru_diffusion.training.export import export_checkpoint
from mineru_diffusion.training.feed import Drawn, Feed, Mover
from mineru_diffusion.training.limits import StopRequest
from mineru_diffusion.training.logs import RunLog
from mineru_diffusion.training.lora import add_adapters, merge_weights, save_adapter
from mineru_diffusion.training.network import build_module, build_network, recompute_activations
from mineru_diffusion.training.optim import Average, build_optimizers, schedule, set_rate
from mineru_diffusion.training.state import (
    STATE,
    Progress,
    averaged_network,
    collect,
    is_sharded,
    read_state,
    restore_module,
    restore_rest,
    start_from,
    whole,
    write_state,
)
from mineru_diffusion.training.watch import Watcher, averaged

try:
    from accelerate import Accelerator, DistributedDataParallelKwargs
    from accelerate.state import AcceleratorState
    from accelerate.utils import gather_object
except ImportError as error:
    raise MissingExtra("training", "train") from error

DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}


class Trainer:
    """One run.

    Args:
        config: what to train.
        out: folder of this run: `state.pt` (to resume), logs, `checkpoint/` (published format; with adapters merged),
            `best/` (the best evaluation's checkpoint), `adapter/` (with LoRA).
        resume: go on from `out/state.pt` if it is there.
        quiet: nothing on the terminal.

    Raises:
        UsageError: `out` already holds a run and `resume` was not asked for, or `init_from` holds none.
    """

    def __init__(self, config: TrainConfig, out: Path, *, resume: bool = False, quiet: bool = False) -> None:
        self.config, self.out = config, out
        state_path = out / STATE
        if state_path.exists() and not resume:
            raise UsageError(f"{out} already holds a run; pass --resume to go on, or choose another folder")
        out.mkdir(parents=True, exist_ok=True)
        # A process may train several runs, one after the other, whose precision differs.
        AcceleratorState._reset_state()
        self.accelerator = Accelerator(
            cpu=config.device == "cpu",
            mixed_precision="bf16" if config.precision == "bfloat16" else "no",
            # Helper heads and the eye take part in some batches only.
            kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=True)],
        )
        self.device, processes = self.accelerator.device, self.accelerator.num_processes
        if config.device not in ("auto", self.device.type):
            raise UsageError(f"device: there is no {config.device} here, only {self.device.type}; use auto or cpu")
        self.per_step = max(config.accumulate, processes)
        if self.per_step % processes:
            raise UsageError(f"accumulate {config.accumulate} must be a multiple of the {processes} processes")
        self.main = self.accelerator.is_main_process
        self.console = Console(stderr=True, quiet=quiet or not self.main)
        torch.manual_seed(config.seed)
        self.parts = build_network(config)
        network = self.parts.network
        if config.attention == "flex" and self.device.type != "cuda":
            raise UsageError(
                f"attention: flex trains on CUDA only, this run is on {self.device.type}; use auto or sdpa"
            )
        flex = config.attention != "sdpa" and self.device.type == "cuda"
        self.module = build_module(config, network, flex=flex)
        if config.init_from and not state_path.exists():
            start_from(self.module, Path(config.init_from))
        self.adapters = add_adapters(network, config.lora) if config.lora.rank else None
        recompute_activations(network, config.checkpointing)
        state = read_state(state_path) if state_path.exists() else None
        if state is not None:
            restore_module(state, self.module, out)
        if config.compile:
            # Not the decoder's attention: losses look at its queries and keys, which a compiled layer does not show.
            for layer in (*network.vision_model.blocks, *(x.mlp for x in network.language_model.model.layers)):
                layer.compile(dynamic=True)
        prepared = self.accelerator.prepare(self.module, *build_optimizers(self.module, config.optimizer))
        self.wrapped, self.optimizers = prepared[0], list(prepared[1:])
        self.module = self.accelerator.unwrap_model(self.wrapped)
        if is_sharded(self.module) and (config.evaluation.every or config.evaluation.show_every):
            raise UsageError("evaluation reads with the whole network: with FSDP evaluate saved checkpoints instead")
        self.average = Average(self.module, config.optimizer.ema)
        self.progress = Progress()
        if state is not None:
            self.progress = restore_rest(state, self.module, self.average, self.optimizers, out)
            if not self.main:
                # The figures of a half-finished log line are the first process's.
                self.progress.window.clear()
        if not (config.grow_from and self.progress.max_chars):
            self.progress.max_chars = config.grow_from or config.lines.max_chars
        self.mover = Mover(self.parts, self.device)
        self.feed = Feed(config, self.parts, self.progress)
        self.watcher = Watcher(config, self.parts)
        self.window: dict[str, list[Tensor]] = {}

    # -- state ---------------------------------------------------------------------------------------------------------

    def save(self) -> None:
        """Write the state and the exported average; both are replaced whole."""
        if not (self.main or is_sharded(self.module)):
            return
        self._settle_window()
        state = collect(self.module, self.average, self.optimizers, self.progress, self.config)
        if self.main:
            write_state(self.out / STATE, state)
        self._export(self.out / "checkpoint")

    def _export(self, folder: Path) -> None:
        weights = averaged_network(self.module, self.average)
        if not self.main:
            return
        if self.adapters is not None:
            save_adapter(self.adapters, weights, self.out / "adapter")
            weights = merge_weights(weights, self.config.lora)
        export_checkpoint(
            self.parts.network,
            self.parts.processor,
            self.parts.profile,
            folder,
            DTYPES[self.config.export_dtype],
            weights,
        )

    # -- the loop ------------------------------------------------------------------------------------------------------

    def run(self, time_limit_minutes: float | None = None) -> Progress:
        """Train until `max_steps` or the time limit, and save.

        Raises:
            KeyboardInterrupt: Ctrl-C or SIGTERM; the state after the last whole step is saved.
        """
        config, progress = self.config, self.progress
        limit = math.inf if time_limit_minutes is None else time_limit_minutes * 60
        log = RunLog(
            self.out if self.main else None, self.console, tensorboard=config.tensorboard, max_steps=config.max_steps
        )
        stopped = False
        with StopRequest() as stop, log:
            started = last_save = last_log = time.monotonic()
            samples_at_log = progress.samples
            while progress.step < config.max_steps and not stopped:
                self._step(self._take())
                progress.step += 1
                now = time.monotonic()
                log.step(progress.step, self._last_loss(), None if limit == math.inf else started + limit - now)
                if progress.step % config.log_every == 0:
                    means = self._means()
                    rate = (progress.samples - samples_at_log) / (now - last_log)
                    progress.seconds += now - last_log
                    last_log, samples_at_log = now, progress.samples
                    log.record(progress.step, self._figures(means, rate))
                    self._grow(means, log)
                self._look(log)
                stopped = self._agreed(stop.requested or time.monotonic() - started > limit)
                if not stopped and self._agreed(time.monotonic() - last_save > config.save_minutes * 60):
                    self.save()
                    last_save = time.monotonic()
            self.save()
        if self._agreed(stop.requested):
            raise KeyboardInterrupt
        return progress

    def _agreed(self, wish: bool) -> bool:
        """Whether any process wishes it, so that all do the same."""
        if self.accelerator.num_processes == 1:
            return wish
        votes: Tensor = self.accelerator.reduce(torch.tensor(float(wish), device=self.device), reduction="sum")
        return bool(votes > 0)

    def _take(self) -> list[tuple[int, Drawn]]:
        """This process's batches of the next step, with their numbers in it."""
        mine = []
        for number in range(self.per_step):
            drawn = self.feed.take()
            self.progress.samples += drawn.samples
            if number % self.accelerator.num_processes == self.accelerator.process_index:
                mine.append((number, drawn))
        return mine

    def _step(self, batches: list[tuple[int, Drawn]]) -> None:
        """One optimizer step; its figures go into the window."""
        config, step = self.config, self.progress.step
        self.wrapped.train()
        for at, (number, drawn) in enumerate(batches):
            seed = config.seed * 1_000_003 + step + (number << 40)
            generator = torch.Generator().manual_seed(seed)
            # Dropout draws from the global stream, which a resumed run would otherwise begin anew.
            torch.manual_seed(seed)
            last = at == len(batches) - 1
            with contextlib.nullcontext() if last else self.accelerator.no_sync(self.wrapped):
                losses = self.wrapped(
                    self.mover(drawn.batch),
                    generator,
                    vision_only=config.stage == "vision",
                    freeze_vision=config.freeze_vision,
                )
                self.accelerator.backward(losses.total / len(batches))
            for name, value in losses.parts.items():
                self._note(f"{drawn.label}/{name}" if drawn.label else name, value)
        norm = self.accelerator.clip_grad_norm_(
            [p for p in self.wrapped.parameters() if p.grad is not None], config.optimizer.clip
        )
        norm = whole(norm)
        if not math.isfinite(float(norm)):
            # One bad batch must not ruin the weights.
            self._note("skipped", torch.ones(()))
        else:
            self._note("norm", norm)
            set_rate(self.optimizers, schedule(step, config.optimizer, config.max_steps))
            for optimizer in self.optimizers:
                optimizer.step()
            self.average.update(self.module)
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)

    # -- figures -------------------------------------------------------------------------------------------------------

    def _note(self, name: str, value: Tensor) -> None:
        """Keep a figure until the next log line; as a tensor, because reading one makes a GPU wait."""
        self.window.setdefault(name, []).append(value.detach())

    def _settle_window(self) -> None:
        """Turn the noted figures into numbers, which a state can hold."""
        for name, values in self.window.items():
            self.progress.window.setdefault(name, []).extend(float(value) for value in values)
        self.window.clear()

    def _last_loss(self) -> float | None:
        """The newest loss, where reading it costs nothing."""
        losses = self.window.get("loss") or self.window.get("slots")
        return float(losses[-1]) if losses and losses[-1].device.type == "cpu" else None

    def _means(self) -> dict[str, float]:
        """The means since the last log line, over all processes."""
        self._settle_window()
        windows = [self.progress.window]
        if self.accelerator.num_processes > 1:
            windows = gather_object(windows)
        means: dict[str, float] = {}
        for name in dict.fromkeys(name for window in windows for name in window):
            values = [value for window in windows for value in window.get(name, [])]
            # "skipped" is noted when it happens, once by every process.
            means[name] = sum(values) / len(values)
        self.progress.window.clear()
        return means

    def _figures(self, means: dict[str, float], rate: float) -> dict[str, float]:
        progress = self.progress
        lengths = {"max_chars": progress.max_chars} if LINES in self.config.sources else {}
        return {
            "step": progress.step,
            "samples": progress.samples,
            **lengths,
            "minutes": round(progress.seconds / 60, 2),
            "samples_per_second": round(rate, 1),
            **{name: round(value, 4) for name, value in means.items()},
        }

    def _grow(self, means: dict[str, float], log: RunLog) -> None:
        """Widen the lines once the loss is low; the next chunk then has the new length."""
        config, progress = self.config, self.progress
        progress.since_growth += 1
        watched = means.get("loss", means.get("slots", math.inf))
        longest = config.lines.max_chars
        if (
            LINES not in config.sources
            or progress.max_chars >= longest
            or not watched <= config.grow_below
            or progress.since_growth < 2
        ):
            return
        progress.max_chars = min(longest, progress.max_chars + config.grow_by)
        progress.since_growth = 0
        self.feed.lengthen()
        log.say(f"lines grow to {progress.max_chars} characters")

    def _look(self, log: RunLog) -> None:
        """Transcribe and evaluate held-out samples when it is time to, and keep the best checkpoint."""
        config, step = self.config.evaluation, self.progress.step
        show = bool(config.show_every) and step % config.show_every == 0
        evaluate = bool(config.every) and step % config.every == 0
        if self.config.stage != "joint" or not (show or evaluate):
            return
        if self.main:
            with averaged(self.module, self.average):
                if show:
                    log.transcriptions(step, self.watcher.transcribe(step))
                figures = self.watcher.evaluate() if evaluate else {}
            if figures:
                log.evaluation(step, figures)
                if self.progress.best is None or figures["score"] > self.progress.best:
                    self.progress.best = figures["score"]
                    self._export(self.out / "best")
        self.accelerator.wait_for_everyone()


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
