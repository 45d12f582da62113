"""Optimizers and their schedule: Muon for the layers' matrices, AdamW for the rest, one schedule for both; and the
average of the weights."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer

from mineru_diffusion.training.config import OptimizerConfig


def schedule(step: int, config: OptimizerConfig, max_steps: int) -> float:
    """Factor of the learning rate at a step (from 0): linear warm-up, then as `config.schedule` says."""
    warm = min(1.0, (step + 1) / max(1, config.warmup_steps))
    if config.schedule == "cosine":
        done = (step - config.warmup_steps) / max(1, max_steps - config.warmup_steps)
        fall = 0.5 * (1.0 + math.cos(math.pi * min(1.0, max(0.0, done))))
        return warm * (config.lowest + (1.0 - config.lowest) * fall)
    if config.schedule == "wsd" and config.decay_steps:
        return warm * min(1.0, (max_steps - step) / config.decay_steps)
    return warm


def orthogonalise(matrices_NRC: Tensor, steps: int = 5) -> Tensor:
    """Approximate U V^T of each matrix's singular value decomposition by a quintic Newton-Schulz iteration (K. Jordan
    et al., "Muon", 2024). Singular values end up in about [0.7, 1.2].

    Args:
        matrices_NRC: [N, R, C].
    """
    a, b, c = 3.4445, -4.7750, 2.0315
    tall = matrices_NRC.shape[1] > matrices_NRC.shape[2]
    x = matrices_NRC.transpose(1, 2) if tall else matrices_NRC
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp_min(1e-7)
    for _ in range(steps):
        gram = x @ x.transpose(1, 2)
        x = a * x + torch.baddbmm(gram, gram, gram, beta=b, alpha=c) @ x
    return x.transpose(1, 2) if tall else x


class BatchedMuon(Optimizer):
    """Muon with Nesterov momentum, in the parameters' own precision, all of one shape in one product.

    torch has a Muon too, which takes the matrices one by one in bfloat16; without matrix units for that type, as on
    most CPUs, it costs more than the whole backward pass of a small network. Updates are scaled by
    0.2 sqrt(max(R, C)), so that their size matches AdamW's and rates carry over (Moonlight, arXiv 2502.16982,
    section 2.2).

    Args:
        params: two-dimensional parameters.
        lr: learning rate.
        momentum: of the gradient average.
        weight_decay: decoupled.
    """

    def __init__(self, params: Iterable[Tensor], lr: float, momentum: float = 0.95, weight_decay: float = 0.0) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            shapes: dict[torch.Size, list[Tensor]] = defaultdict(list)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    shapes[parameter.shape].append(parameter)
            for shape, parameters in shapes.items():
                averages = []
                for parameter in parameters:
                    state = self.state[parameter]
                    if "momentum" not in state:
                        state["momentum"] = torch.zeros_like(parameter)
                    averages.append(state["momentum"])
                gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
                torch._foreach_lerp_(averages, gradients, 1.0 - group["momentum"])
                updates = torch.stack(torch._foreach_lerp(gradients, averages, group["momentum"]))
                scale = 0.2 * max(shape) ** 0.5 * group["lr"]
                torch._foreach_mul_(parameters, 1.0 - group["lr"] * group["weight_decay"])
                torch._foreach_add_(parameters, list(orthogonalise(updates).unbind()), alpha=-scale)


def _is_layer_matrix(name: str, parameter: nn.Parameter) -> bool:
    return parameter.ndim == 2 and (".layers." in name or ".blocks." in name)


def build_optimizers(module: nn.Module, config: OptimizerConfig) -> list[Optimizer]:
    """Muon for the decoder's and the vision tower's layer matrices, AdamW for the rest (and for all if `muon_lr` is 0).
    Frozen parameters are left out."""
    named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
    matrices = [p for name, p in named if config.muon_lr and _is_layer_matrix(name, p)]
    chosen = {id(p) for p in matrices}
    rest = [p for _, p in named if id(p) not in chosen]
    groups = [
        {"params": [p for p in rest if p.ndim >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in rest if p.ndim < 2], "weight_decay": 0.0},
    ]
    optimizers: list[Optimizer] = [
        torch.optim.AdamW([g for g in groups if g["params"]], lr=config.lr, betas=config.betas, fused=True)
    ]
    if matrices:
        optimizers.append(BatchedMuon(matrices, lr=config.muon_lr, weight_decay=config.weight_decay))
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["base_lr"] = group["lr"]
    return optimizers


def set_rate(optimizers: list[Optimizer], factor: float) -> None:
    """Scale every group's own base rate."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["base_lr"] * factor


class Average:
    """Exponential moving average of a module's trained parameters, with the usual warm-up of its decay.

    Args:
        decay: 0 keeps no average: the weights themselves are then what is evaluated and exported.
    """

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.decay = decay
        self.shadow = (
            {name: p.detach().clone() for name, p in module.named_parameters() if p.requires_grad} if decay else {}
        )
        self.updates = 0

    @torch.no_grad()
    def update(self, module: nn.Module) -> None:
        """Take in the weights of one more step."""
        self.updates += 1
        if not self.shadow:
            return
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        pairs = [(self.shadow[name], p) for name, p in module.named_parameters() if name in self.shadow]
        torch._foreach_lerp_([a for a, _ in pairs], [p.detach() for _, p in pairs], 1.0 - decay)

    def state_dict(self) -> dict[str, object]:
        shadow = {n: t.full_tensor() if isinstance(t, DTensor) else t for n, t in self.shadow.items()}
        return {"shadow": shadow, "updates": self.updates}

    def load_state_dict(self, state: dict[str, object]) -> None:
        shadow = state["shadow"]
        assert isinstance(shadow, dict)
        for name, tensor in shadow.items():
            if name in self.shadow:
                own = self.shadow[name]
                if isinstance(own, DTensor):
                    tensor = distribute_tensor(tensor.to(own.device), own.device_mesh, own.placements)
                own.copy_(tensor)
        self.updates = int(state["updates"])  # type: ignore[call-overload]
