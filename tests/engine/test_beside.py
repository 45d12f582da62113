"""Threads that work beside passes, and the order that CUDA streams need."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from mineru_diffusion.engine.beside import Beside, LazyThread


def _fails() -> Any:
    raise OSError("truncated")


def test_work_is_done_once_by_a_thread_of_its_own() -> None:
    beside, done, begun = Beside(torch.device("cpu")), [], threading.Event()

    def work() -> list[torch.Tensor]:
        begun.set()
        done.append(threading.current_thread().name)
        return []

    beside.finish()  # nothing was begun
    beside.start(work)
    beside.finish()
    beside.finish()
    assert [name.split("_")[0] for name in done] == ["beside"]
    begun.clear()
    beside.start(work)
    assert begun.wait(30)
    beside.close()
    beside.close()
    assert len(done) == 2
    assert not [t for t in threading.enumerate() if t.name.startswith("beside")]


def test_without_a_thread_it_is_done_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    thread, done = LazyThread("none"), []
    start = threading.Thread.start

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert thread.submit(done.append, 1).done()
    assert done == [1]
    with pytest.raises(OSError, match="truncated"):
        thread.submit(_fails).result()
    monkeypatch.setattr(threading.Thread, "start", start)
    thread.submit(done.append, 2).result()
    thread.close()
    assert done == [1, 2]  # what was refused is not done again


class FakeStream:
    """Says in `log` who waits for whom."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name, self.log = name, log

    def wait_stream(self, other: FakeStream) -> None:
        self.log.append(f"{self.name} waits for {other.name}")


def test_a_stream_is_ordered_by_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The order of calls that CUDA asks for; what they do is seen on a GPU only, by the tests above."""
    log: list[str] = []
    main, side = FakeStream("main", log), FakeStream("side", log)

    class FakeTensor:
        def record_stream(self, stream: FakeStream) -> None:
            log.append(f"kept for {stream.name}")

    @contextlib.contextmanager
    def on(stream: FakeStream) -> Iterator[None]:
        log.append(f"on {stream.name}, thread {threading.current_thread().name.split('_')[0]}")
        yield

    def work() -> Any:
        log.append("work")
        return [FakeTensor()]

    monkeypatch.setattr(torch.cuda, "Stream", lambda _: side)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda *_: main)
    monkeypatch.setattr(torch.cuda, "stream", on)
    beside = Beside(torch.device("cuda"))
    beside.finish()
    assert log == []
    beside.start(work)
    beside.finish()
    assert log == ["side waits for main", "on side, thread beside", "work", "main waits for side", "kept for main"]
    beside.finish()
    assert len(log) == 5

    def interrupted(_: FakeStream) -> None:
        monkeypatch.setattr(main, "wait_stream", wait)
        raise KeyboardInterrupt

    wait = main.wait_stream
    monkeypatch.setattr(main, "wait_stream", interrupted)
    beside.start(work)
    with pytest.raises(KeyboardInterrupt):
        beside.finish()
    beside.finish()
    assert log[-2:] == ["main waits for side", "kept for main"]
    beside.close()
