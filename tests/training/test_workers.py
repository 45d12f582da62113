"""The processes that make batches live as long as their trainer wants: real processes, real signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mineru_diffusion.training.limits import ECHO, StopRequest
from tests.training.small import config

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(not hasattr(signal, "sigtimedwait"), reason="needs to know who sent a signal")

READER = """
import os, sys, time
from torch.utils.data import IterableDataset
from mineru_diffusion.training.data import batches, worker_share
from mineru_diffusion.training.limits import StopRequest

PAUSE = float(sys.argv[1])

class Chunks(IterableDataset):
    def __iter__(self):
        for number in worker_share(0):
            # The third chunk of each worker takes long, as rendering may.
            time.sleep(PAUSE if number >= 4 else 0.05)
            # More than a pipe holds, so that a worker without a reader is in the middle of writing.
            yield number, [bytes(300_000)]

with StopRequest() as stop:
    reader = batches(Chunks(), 2, 0)
    next(reader)
    print("reading", flush=True)
    started = time.monotonic()
    while not stop.requested and time.monotonic() - started < 300:
        time.sleep(0.05)
        if not PAUSE:
            next(reader)
    after = [next(reader)[0] for _ in range(3)]
    print("read on", after == list(range(after[0], after[0] + 3)), flush=True)
    reader.close()
    print("closed", flush=True)
"""


def members(group: int) -> list[int]:
    """The living processes of a process group."""
    found = subprocess.run(["ps", "-eo", "pid=,pgid=,stat="], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in found.splitlines()]
    return [int(pid) for pid, pgid, state in rows if int(pgid) == group and not state.startswith("Z")]


def seconds_until_gone(group: int, limit: float = 120.0) -> float:
    """How long until the group is empty."""
    started = time.monotonic()
    while members(group):
        assert time.monotonic() - started < limit, f"still there: {members(group)}"
        time.sleep(0.1)
    return time.monotonic() - started


@contextmanager
def group(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A Python process at the head of its own process group."""
    process = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        for pid in members(process.pid):
            os.kill(pid, signal.SIGKILL)
        process.wait()


def wait_for(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line)
        if line.startswith(word):
            return
    raise AssertionError("".join(said))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_whole_group_leaves_the_workers_at_work(number: signal.Signals) -> None:
    with group("-c", READER, "0") as process:
        wait_for(process, "reading")
        assert len(members(process.pid)) == 3
        os.killpg(process.pid, number)
        said, _ = process.communicate(timeout=300)
        assert process.returncode == 0, said
        assert said.split("\n")[:2] == ["read on True", "closed"]
        assert not members(process.pid)


@pytest.mark.slow
def test_workers_in_a_long_chunk_end_when_the_trainer_closes_them() -> None:
    with group("-c", READER, "1000") as process:
        wait_for(process, "reading")
        os.killpg(process.pid, signal.SIGTERM)
        wait_for(process, "read on")
        started = time.monotonic()
        wait_for(process, "closed")
        process.wait(timeout=300)
        assert process.returncode == 0
        # DataLoader asks for a while before it sends SIGTERM.
        assert time.monotonic() - started < 120
        assert not members(process.pid)


@pytest.mark.parametrize("pause", ["0", "1000"])
def test_workers_end_with_a_trainer_that_is_killed(pause: str) -> None:
    with group("-c", READER, pause) as process:
        wait_for(process, "reading")
        process.kill()
        process.wait()
        assert seconds_until_gone(process.pid) < 60


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_saves_when_its_whole_group_is_told_to_stop(tmp_path: Path, number: signal.Signals) -> None:
    out = tmp_path / "run"
    arguments = ["-m", "mineru_diffusion.cli", "train", str(config(tmp_path, steps=100_000)), "--out", str(out)]
    with group(*arguments, "--set", "lines.workers=2") as process:
        started = time.monotonic()
        while not (out / "log.jsonl").is_file() and process.poll() is None:
            assert time.monotonic() - started < 600
            time.sleep(0.1)
        # As `timeout` does: to the process, then to the group.
        os.kill(process.pid, number)
        os.killpg(process.pid, number)
        said, _ = process.communicate(timeout=600)
        assert process.returncode == 130, said
        assert "interrupted" in said
        assert (out / "state.pt").is_file()
        assert not members(process.pid)


def test_an_echo_of_a_signal_is_not_a_second_one(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with StopRequest() as stop:
        signal.raise_signal(signal.SIGTERM)
        now[0] += 0.9 * ECHO
        signal.raise_signal(signal.SIGTERM)
        assert stop.requested
        now[0] += 0.2 * ECHO
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
