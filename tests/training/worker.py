"""One of several training processes on CPUs, for `test_processes`: RANK and WORLD_SIZE come from the environment.

python -m tests.training.worker ddp CONFIG OUT
python -m tests.training.worker fsdp CONFIG OUT
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from mineru_diffusion.training.config_file import load_config
from mineru_diffusion.training.feed import Feed, Mover
from mineru_diffusion.training.network import build_module, build_network
from mineru_diffusion.training.optim import Average, build_optimizers
from mineru_diffusion.training.state import (
    STATE,
    Progress,
    averaged_network,
    collect,
    read_state,
    restore_module,
    restore_rest,
    whole,
    write_state,
)
from mineru_diffusion.training.trainer import train


def fsdp(config_path: Path, out: Path) -> None:
    """Two steps with weights shared out, stopped and gone on after the first; rank 0 writes what came out.

    Accelerate offers FSDP on accelerators only, so the layers are wrapped here as it would wrap them.
    """
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    config = load_config(config_path)
    state = None
    for step in range(2):
        parts = build_network(config)
        module = build_module(config, parts.network, flex=False)
        if state is not None:
            restore_module(state, module, out)
        for layer in (*parts.network.vision_model.blocks, *parts.network.language_model.model.layers):
            fully_shard(layer, mesh=mesh)
        fully_shard(module, mesh=mesh)
        optimizers = build_optimizers(module, config.optimizer)
        average = Average(module, config.optimizer.ema)
        progress = Progress(max_chars=config.lines.max_chars)
        if state is not None:
            progress = restore_rest(state, module, average, optimizers, out)
        drawn = Feed(config, parts, progress).take()
        inputs = Mover(parts, torch.device("cpu"))(drawn.batch)
        module(inputs, torch.Generator().manual_seed(step)).total.backward()
        norm = whole(torch.nn.utils.clip_grad_norm_(module.parameters(), config.optimizer.clip))
        for optimizer in optimizers:
            optimizer.step()
        average.update(module)
        kept = collect(module, average, optimizers, progress, config)
        if dist.get_rank() == 0:
            write_state(out / STATE, kept)
        dist.barrier()
        state = read_state(out / STATE)
        weights = averaged_network(module, average)
        if dist.get_rank() == 0:
            torch.save({"weights": weights, "norm": norm}, out / f"step{step}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    kind, config_file, folder = sys.argv[1:]
    if kind == "ddp":
        train(config_file, folder, quiet=True)
        # Gloo's threads do not always end by themselves.
        sys.stdout.flush()
        os._exit(0)
    fsdp(Path(config_file), Path(folder))
