"""A stream to a folder of shards, by several processes, to be broken off and gone on with.

In: a stream, a count. Out: `shard-00000.parquet` ... and `synth.json`, which says what they were made from. Which shard
has which samples depends on their numbers only, never on the processes.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mineru_diffusion.errors import MinerUDiffusionError, SourceError, UsageError
from mineru_diffusion.synthesis.sample import Sample, SampleStream
from mineru_diffusion.synthesis.shards import SHARD_SIZE, count_rows, remove_parts, shard_path, write_shard

MANIFEST = "synth.json"
_POLL_SECONDS = 0.2


@dataclass(frozen=True)
class MakeReport:
    """Attributes:
    paths: all shards of the folder.
    made: samples made in this run.
    kept: samples that were there already.
    """

    paths: list[Path]
    made: int
    kept: int


class _Stopped(Exception):
    """The run was interrupted; what is half done is dropped."""


def make_shards(
    stream: SampleStream,
    out: str | Path,
    count: int,
    *,
    facts: dict[str, Any],
    shard_size: int = SHARD_SIZE,
    workers: int = 1,
    progress: Callable[[int], None] = lambda done: None,
) -> MakeReport:
    """Write samples 0 to `count` of a stream. Whole shards of an earlier run with the same facts are kept; an interrupt
    leaves whole shards only.

    Args:
        stream: picklable when there is more than one worker.
        out: folder.
        count: number of samples; more than in an earlier run adds shards.
        facts: what the stream was made from, as plain values: a folder of other facts is refused.
        shard_size: samples a file.
        workers: processes.
        progress: called in this process with the number of samples done.

    Raises:
        UsageError: an argument is out of range, or the folder holds shards made from something else.
        MissingExtra: pyarrow is not installed.
        MinerUDiffusionError: a sample could not be made, or a worker process died.
    """
    if count < 1 or shard_size < 1 or workers < 1:
        raise UsageError(f"bad count {count}, shard size {shard_size} or workers {workers}: each must be at least 1")
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    _claim(folder, {**facts, "shard_size": shard_size})
    remove_parts(folder)
    spans = [(i, first, min(first + shard_size, count)) for i, first in enumerate(range(0, count, shard_size))]
    todo = [(shard_path(folder, i), first, last) for i, first, last in spans if not _has(folder, i, last - first)]
    made = sum(last - first for _, first, last in todo)
    kept = count - made
    progress(kept)
    if workers == 1 or len(todo) < 2:
        done = kept
        for path, first, last in todo:

            def tick() -> None:
                nonlocal done
                done += 1
                progress(done)

            write_shard(_samples(stream, first, last, tick), path)
    else:
        _in_processes(stream, todo, min(workers, len(todo)), lambda number: progress(kept + number))
    return MakeReport([shard_path(folder, i) for i, _, _ in spans], made, kept)


def _claim(folder: Path, facts: dict[str, Any]) -> None:
    """Note what the folder is made from, or check that it is this."""
    path = folder / MANIFEST
    wanted = json.loads(json.dumps(facts))
    if path.exists():
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise UsageError(f"{path} is damaged ({error}): delete the folder, or choose another one") from error
        if found != wanted:
            differing = sorted(k for k in {*found, *wanted} if found.get(k) != wanted.get(k))
            raise UsageError(
                f"{folder} holds shards made with another {', '.join(differing)} (see {path}): "
                "give the same options to go on, or choose another folder"
            )
        return
    if any(folder.glob("*.parquet")):
        raise UsageError(f"{folder} holds shards of unknown origin (there is no {MANIFEST}): choose another folder")
    part = path.with_suffix(f".{os.getpid()}.part")
    part.write_text(json.dumps(wanted, indent=2) + "\n", encoding="utf-8")
    os.replace(part, path)


def _has(folder: Path, number: int, rows: int) -> bool:
    path = shard_path(folder, number)
    try:
        return path.exists() and count_rows(path) == rows
    except SourceError:
        return False


def _samples(stream: SampleStream, first: int, last: int, tick: Callable[[], None]) -> Iterator[Sample]:
    for index in range(first, last):
        yield stream.sample(index)
        tick()


def _in_processes(
    stream: SampleStream, todo: list[tuple[Path, int, int]], workers: int, progress: Callable[[int], None]
) -> None:
    # Not by fork: the fonts and threads of the parent are not safe to share.
    context = multiprocessing.get_context("spawn")
    stop, done = context.Event(), context.Value("q", 0)
    with ProcessPoolExecutor(workers, context, initializer=_begin, initargs=(stream, stop, done)) as pool:
        pending: set[Future[None]] = {pool.submit(_work, *span) for span in todo}
        try:
            while pending:
                finished, pending = wait(pending, _POLL_SECONDS, FIRST_COMPLETED)
                progress(done.value)
                for future in finished:
                    future.result()
        except BaseException as error:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            if isinstance(error, (KeyboardInterrupt, MinerUDiffusionError)) or not isinstance(error, Exception):
                raise
            raise MinerUDiffusionError(f"a worker process failed: {error!r}; use fewer workers, or one") from error
        progress(done.value)


_worker: tuple[SampleStream, Any, Any] | None = None


def _begin(stream: SampleStream, stop: Any, done: Any) -> None:
    """In a worker process: keep the stream, and leave interrupts to the parent."""
    global _worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _worker = (stream, stop, done)


def _end_with_parent() -> None:
    """A parent that was killed cannot tell its workers, which would wait for it for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(path: Path, first: int, last: int) -> None:
    assert _worker is not None, "the pool's initializer runs first"
    stream, stop, done = _worker

    def tick() -> None:
        if stop.is_set():
            raise _Stopped
        with done.get_lock():
            done.value += 1

    write_shard(_samples(stream, first, last, tick), path)
