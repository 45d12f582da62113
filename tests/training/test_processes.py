"""Several processes equal one."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from mineru_diffusion.training.config_file import load_config
from mineru_diffusion.training.feed import Feed, Mover
from mineru_diffusion.training.network import build_module, build_network
from mineru_diffusion.training.optim import Average, build_optimizers
from mineru_diffusion.training.state import Progress, averaged_network
from mineru_diffusion.training.trainer import train
from tests.training.small import config, losses

ROOT = Path(__file__).parents[2]


def launch(kind: str, config_file: Path, out: Path, processes: int = 2) -> None:
    """Run `tests.training.worker` in this many processes, as a launcher would."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    common = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(processes),
        "OMP_NUM_THREADS": "1",
    }
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.training.worker", kind, str(config_file), str(out)],
            cwd=ROOT,
            env={
                **os.environ,
                **common,
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "LOCAL_WORLD_SIZE": str(processes),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(processes)
    ]
    outputs = [process.communicate(timeout=900)[0] for process in running]
    for process, output in zip(running, outputs, strict=True):
        assert process.returncode == 0, output[-3000:]


@pytest.mark.slow
def test_two_processes_have_the_losses_of_one_with_twice_the_batches(tmp_path: Path) -> None:
    path = config(tmp_path, steps=4)
    launch("ddp", path, tmp_path / "two")
    train(path, tmp_path / "one", overrides=["accumulate=2"], quiet=True)
    two, one = losses(tmp_path / "two"), losses(tmp_path / "one")
    assert len(two) == len(one) == 2
    for found, expected in zip(two, one, strict=True):
        assert found == pytest.approx(expected, rel=2e-3, abs=2e-3)


@pytest.mark.slow
def test_shared_out_weights_are_saved_whole_and_go_on(tmp_path: Path) -> None:
    path, out = config(tmp_path, steps=2), tmp_path / "fsdp"
    out.mkdir()
    launch("fsdp", path, out)
    # Both processes had the same batches, so one process without sharding must get the same weights.
    settings = load_config(path)
    parts = build_network(settings)
    module = build_module(settings, parts.network, flex=False)
    optimizers = build_optimizers(module, settings.optimizer)
    average, feed = Average(module, settings.optimizer.ema), Feed(settings, parts, Progress(max_chars=6))
    sure: dict[str, torch.Tensor] = {}
    for step in range(2):
        inputs = Mover(parts, torch.device("cpu"))(feed.take().batch)
        module(inputs, torch.Generator().manual_seed(step)).total.backward()
        norm = torch.nn.utils.clip_grad_norm_(module.parameters(), settings.optimizer.clip)
        for name, parameter in module.network.named_parameters():
            if parameter.grad is not None:
                clear = parameter.grad.abs() > 1e-3 * parameter.grad.abs().max()
                sure[name] = sure.get(name, torch.ones_like(clear)) & clear
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        average.update(module)
        saved = torch.load(out / f"step{step}.pt")
        torch.testing.assert_close(saved["norm"], norm, atol=0, rtol=1e-3)
        for name, tensor in averaged_network(module, average).items():
            # A gradient near 0 has its sign from the order of a sum, and AdamW's first steps follow the sign.
            known = sure.get(name, torch.ones_like(tensor, dtype=torch.bool))
            torch.testing.assert_close(saved["weights"][name][known], tensor[known], atol=2e-4, rtol=1e-2)
