"""What a run keeps on disk: `state.pt`, with which it goes on, and the exported average.

`state.pt`: `module` (names to tensors; with adapters only the trained ones), `average`, `optimizers`, `progress`,
`config`. It is written aside and put in place whole.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from mineru_diffusion.errors import UsageError
from mineru_diffusion.model.checkpoint import load_checkpoint
from mineru_diffusion.training.config import LINES, TrainConfig
from mineru_diffusion.training.objective import TrainingModule
from mineru_diffusion.training.optim import Average

STATE = "state.pt"
PREFIX = "network."


@dataclass
class Progress:
    """Where a run stands: optimizer steps, samples and batches seen, the next (chunk, batch) of each data source, how
    long lines are, the best evaluation, and the figures since the last log line."""

    step: int = 0
    samples: int = 0
    batches: int = 0
    positions: dict[str, tuple[int, int]] = field(default_factory=dict)
    max_chars: int = 0
    seconds: float = 0.0
    since_growth: int = 0
    best: float | None = None
    window: dict[str, list[float]] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Progress:
        """From a state's `progress`; earlier states had one data source, whose position stood for itself."""
        values = dict(values)
        if "chunk" in values:
            values["positions"] = {LINES: (values.pop("chunk"), values.pop("batch"))}
        return cls(**values)


def read_state(path: Path) -> dict[str, Any]:
    """Read a state file.

    Raises:
        UsageError: it is damaged.
    """
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=False)
    except (EOFError, RuntimeError, OSError) as error:
        raise UsageError(f"{path} is damaged ({error}); start a new run, from a checkpoint by init_from") from error
    return state


def write_state(path: Path, state: dict[str, Any]) -> None:
    """Write a state file, whole or not at all."""
    draft = path.with_name(f"{path.name}.new")
    torch.save(state, draft)
    os.replace(draft, path)


def start_from(module: TrainingModule, source: Path) -> None:
    """Start from another run's average (what it would have exported), or from an exported checkpoint, which has no
    helper heads: those start anew then.

    Raises:
        UsageError: `source` is neither, or holds another network.
    """
    if (source / STATE).is_file():
        state = read_state(source / STATE)
        weights = {**state.get("module", {}), **state["average"]["shadow"]}
    elif (source / "config.json").is_file():
        loaded = load_checkpoint(source, dtype=torch.float32).model.state_dict()
        weights = {f"{PREFIX}{name}": tensor for name, tensor in loaded.items()}
    else:
        raise UsageError(f"init_from: {source} holds neither a run nor a checkpoint; train that stage first")
    own = module.state_dict()
    wrong = [name for name in own if name.startswith(PREFIX) and name not in weights]
    wrong += [
        name
        for name, tensor in weights.items()
        if (name in own and own[name].shape != tensor.shape) or (name not in own and name.startswith(PREFIX))
    ]
    if wrong:
        raise UsageError(
            f"init_from: {source} holds another network than the configuration describes (e.g. {wrong[0]})"
        )
    module.load_state_dict({name: tensor for name, tensor in weights.items() if name in own}, strict=False)


def whole(tensor: Tensor) -> Tensor:
    """The tensor itself, or all of one that is shared out among processes (then all of them must ask)."""
    return tensor.full_tensor().cpu() if isinstance(tensor, DTensor) else tensor


def is_sharded(module: nn.Module) -> bool:
    """Whether the parameters are shared out among processes."""
    return any(isinstance(p, DTensor) for p in module.parameters())


def module_state(module: TrainingModule, *, trained_only: bool) -> dict[str, Tensor]:
    """What of the module goes into a state."""
    state: dict[str, Tensor] = module.state_dict()
    if trained_only:
        trained = {name for name, p in module.named_parameters() if p.requires_grad}
        state = {name: tensor for name, tensor in state.items() if name in trained}
    return state


@contextmanager
def _belongs(where: Path) -> Iterator[None]:
    """What does not fit becomes a UsageError that says so."""
    try:
        yield
    except (KeyError, RuntimeError, ValueError) as error:
        raise UsageError(
            f"{where}: its state belongs to another configuration ({error}); use the one it was started with, or "
            "start a new run with init_from"
        ) from error


def restore_module(state: dict[str, Any], module: TrainingModule, where: Path) -> None:
    """Put a state's weights back; before the module is wrapped.

    Raises:
        UsageError: they belong to another configuration.
    """
    with _belongs(where):
        known = module_state(module, trained_only=bool(state["config"].get("lora", {}).get("rank")))
        if set(known) != set(state["module"]):
            odd = sorted(set(known) ^ set(state["module"]))[0]
            raise KeyError(f"{odd} is in one of them only")
        module.load_state_dict(state["module"], strict=False)


def restore_rest(
    state: dict[str, Any], module: TrainingModule, average: Average, optimizers: list[Optimizer], where: Path
) -> Progress:
    """Put the average and the optimizers back, after the module is wrapped; returns the progress.

    Raises:
        UsageError: they belong to another configuration.
    """
    settings = [
        [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]
        for optimizer in optimizers
    ]
    with _belongs(where):
        average.load_state_dict(state["average"])
        if isinstance(state["optimizers"], dict) != is_sharded(module):
            raise ValueError("one of them shares its weights out among processes, the other does not")
        if is_sharded(module):
            set_optimizer_state_dict(
                module, _plain(optimizers), state["optimizers"], options=StateDictOptions(full_state_dict=True)
            )
        else:
            for optimizer, saved in zip(optimizers, state["optimizers"], strict=True):
                optimizer.load_state_dict(saved)
        # The configuration wins, so that a run can be resumed with other rates.
        for optimizer, groups in zip(optimizers, settings, strict=True):
            for group, own in zip(optimizer.param_groups, groups, strict=True):
                group.update(own)
    return Progress.from_dict(state["progress"])


def _plain(optimizers: list[Optimizer]) -> list[Optimizer]:
    """Without Accelerate's wrappers, which torch does not take for optimizers."""
    return [getattr(optimizer, "optimizer", optimizer) for optimizer in optimizers]


def collect(
    module: TrainingModule, average: Average, optimizers: list[Optimizer], progress: Progress, config: TrainConfig
) -> dict[str, Any]:
    """A run's state. All processes must call this where weights are shared out."""
    saved: Any = [optimizer.state_dict() for optimizer in optimizers]
    if is_sharded(module):
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        saved = get_optimizer_state_dict(module, _plain(optimizers), options=options)
    weights = module_state(module, trained_only=bool(config.lora.rank))
    return {
        "module": {name: whole(tensor) for name, tensor in weights.items()},
        "average": average.state_dict(),
        "optimizers": saved,
        "progress": asdict(progress),
        "config": asdict(config),
    }


def averaged_network(module: TrainingModule, average: Average) -> dict[str, Tensor]:
    """The network's averaged weights by their names in the network. All processes must call this where weights are
    shared out."""
    weights = {**module.state_dict(), **average.shadow}
    return {name[len(PREFIX) :]: whole(tensor) for name, tensor in weights.items() if name.startswith(PREFIX)}
