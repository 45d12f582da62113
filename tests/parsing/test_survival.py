"""A long batch that is interrupted and killed ends as one that nobody disturbed, in flat memory.

With a reader of numbers in place of a model, through the command line, in processes of their own.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from numbered_pages import number_pdf

PROGRAM = Path(__file__).with_name("numbered_pages.py")


@dataclass(frozen=True)
class Batch:
    """Input files with consecutive numbers on their pages, some of them unreadable."""

    folder: Path
    pages: dict[str, list[int]]
    bad: list[str]


def make_batch(folder: Path, *, files: int, pages: int, bad: int) -> Batch:
    folder.mkdir()
    good: dict[str, list[int]] = {}
    spoiled = []
    for number in range(files):
        name = f"{number:04d}"
        numbers = [number * pages + page + 1 for page in range(pages)]
        data = number_pdf(numbers)
        if bad and number % (files // bad) == files // bad - 1:
            data = (data[: len(data) // 3], b"", b"%PDF-1.7\nnothing", b"not a document")[len(spoiled) % 4]
            spoiled.append(name)
        else:
            good[name] = numbers
        (folder / f"{name}.pdf").write_bytes(data)
    return Batch(folder, good, spoiled)


def start(batch: Batch, out: Path, log: Path, *options: str, seconds: float = 0.0) -> subprocess.Popen[str]:
    command = [sys.executable, str(PROGRAM), "parse", str(batch.folder), "-o", str(out), "--dpi", "72", *options]
    environment = {**os.environ, "READER_LOG": str(log), "READER_SECONDS": str(seconds)}
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def resident_kib(process: int) -> int:
    """Memory of a running process; 0 when it is gone or this is no Linux."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")), 0)


def wait_for(
    running: subprocess.Popen[str],
    until: Callable[[], bool] = lambda: False,
    *,
    limit: float = 1200,
    sample: list[int] | None = None,
) -> None:
    """Until the process ends or `until` holds."""
    deadline = time.monotonic() + limit
    while running.poll() is None and not until():
        if time.monotonic() > deadline:
            running.kill()
            pytest.fail(f"still running after {limit} s")
        if sample is not None:
            sample.append(resident_kib(running.pid))
        time.sleep(0.05)


def tree(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def finished(out: Path) -> int:
    return sum(1 for _ in out.glob("*/.manifest.json"))


def survive(tmp_path: Path, *, files: int, pages: int, bad: int, seconds: float, jobs: int = 1) -> None:
    batch = make_batch(tmp_path / "in", files=files, pages=pages, bad=bad)
    calm, rough = tmp_path / "calm", tmp_path / "rough"
    calm_log, rough_log = tmp_path / "calm.log", tmp_path / "rough.log"
    options = ("--jobs", str(jobs))

    memory: list[int] = []
    undisturbed = start(batch, calm, calm_log, "--report", str(tmp_path / "calm.jsonl"), *options)
    wait_for(undisturbed, sample=memory)
    assert undisturbed.returncode == (3 if bad else 0), undisturbed.communicate()[1]
    for name, numbers in batch.pages.items():
        document = json.loads((calm / name / f"{name}.json").read_text())
        assert [r["content"] for p in document["pages"] for r in p["regions"] if r["kind"] == "text"] == [
            f"number {number}" for number in numbers
        ]
    assert sorted(p.name for p in calm.iterdir()) == sorted(batch.pages)
    lines = [json.loads(line) for line in (tmp_path / "calm.jsonl").read_text().splitlines()]
    assert [line["type"] for line in lines] == ["file"] * files + ["summary"]
    assert [Path(line["path"]).stem for line in lines[:-1] if line["error"]] == batch.bad
    assert all(line["error"]["message"].count("(") for line in lines[:-1] if line["error"])

    # Ctrl-C: what is in flight is finished, nothing else is begun.
    interrupted = start(batch, rough, rough_log, *options, seconds=seconds)
    wait_for(interrupted, lambda: finished(rough) >= len(batch.pages) // 4)
    interrupted.send_signal(signal.SIGINT)
    wait_for(interrupted)
    assert interrupted.returncode == 130
    assert "goes on from here" in interrupted.communicate()[1]
    done = finished(rough)
    assert done < len(batch.pages)
    assert not (rough / ".staging").exists()
    for folder in rough.iterdir():
        whole = (folder / ".manifest.json").exists()
        assert whole != (folder / ".pages.jsonl").exists()
        assert whole == (folder / f"{folder.name}.json").exists()

    # Killed outright.
    killed = start(batch, rough, rough_log, *options, seconds=seconds)
    wait_for(killed, lambda: finished(rough) >= len(batch.pages) // 2)
    killed.kill()
    wait_for(killed)
    assert finished(rough) < len(batch.pages)

    last = start(batch, rough, rough_log, *options)
    wait_for(last)
    assert last.returncode == undisturbed.returncode, last.communicate()[1]
    assert tree(rough) == tree(calm)
    # Only what was in flight when the process was killed was read twice.
    total = len(calm_log.read_bytes())
    assert total == sum(map(len, batch.pages.values()))
    assert total <= len(rough_log.read_bytes()) <= total + 8
    steady = memory[len(memory) // 4 :]
    if steady and files * pages >= 1000:
        half = len(steady) // 2
        print(f"resident memory: {max(steady[:half]) / 1024:.0f} MiB, then {max(steady[half:]) / 1024:.0f} MiB")
        assert max(steady[half:]) < 1.15 * max(steady[:half])


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_small_batch_survives(tmp_path: Path, jobs: int) -> None:
    survive(tmp_path, files=12, pages=3, bad=3, seconds=0.1, jobs=jobs)


@pytest.mark.slow
def test_two_thousand_pages_survive(tmp_path: Path) -> None:
    survive(tmp_path, files=200, pages=10, bad=10, seconds=0.03)


@pytest.mark.slow
def test_five_hundred_pages_in_one_file_need_no_more_memory_than_fifty(tmp_path: Path) -> None:
    peaks = []
    for count in (50, 500):
        batch = make_batch(tmp_path / f"in{count}", files=1, pages=count, bad=0)
        memory: list[int] = []
        running = start(batch, tmp_path / f"out{count}", tmp_path / "log", "--dpi", "150")
        wait_for(running, sample=memory)
        assert running.returncode == 0, running.communicate()[1]
        peaks.append(max(memory) / 1024)
    print(f"50 pages: {peaks[0]:.0f} MiB, 500 pages: {peaks[1]:.0f} MiB")
    # A page is an image of 1.4 MB here: 450 of them would be 600 MiB.
    assert peaks[1] < peaks[0] + 60
