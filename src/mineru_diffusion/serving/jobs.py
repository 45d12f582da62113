"""Documents parsed in the background: threads that take jobs, and what can be asked and said about them."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
from collections import Counter
from concurrent.futures import Future
from pathlib import Path
from queue import SimpleQueue

from mineru_diffusion.document.source_types import DEFAULT_MAX_IMAGE_PIXELS
from mineru_diffusion.document.sources import open_source, parse_page_range
from mineru_diffusion.document.types import Page
from mineru_diffusion.errors import MinerUDiffusionError, UsageError
from mineru_diffusion.parsing.folder import FileReport, parse_to_folder
from mineru_diffusion.parsing.layout import choose_detector
from mineru_diffusion.parsing.layout_types import LayoutDetector
from mineru_diffusion.parsing.options import ParseOptions, decoding_params
from mineru_diffusion.serving.errors import ApiError, busy, from_ours
from mineru_diffusion.serving.job_store import FileState, Job, JobStore
from mineru_diffusion.serving.settings import ServerSettings
from mineru_diffusion.serving.shared import Interrupted, SharedEngine
from mineru_diffusion.serving.worker import EngineWorker

logger = logging.getLogger("mineru_diffusion.serving")

STATES = ("queued", "running", "done", "failed", "cancelled")
CANCELLED, STOPPING, TIMED_OUT = "cancelled", "the server is shutting down", "the time limit was reached"
JOB_PRIORITY = 1
"""Background jobs let waiting requests go first."""


class JobRunner:
    """Runs jobs in threads of its own and remembers all of them.

    Args:
        store: where they live.
        worker: reads the crops.
        detector: the packaged layout detector.
        settings: limits.
    """

    def __init__(
        self, store: JobStore, worker: EngineWorker, detector: LayoutDetector, settings: ServerSettings
    ) -> None:
        self.store = store
        self._worker = worker
        self._detector = detector
        self._settings = settings
        self._lock = threading.RLock()
        self._jobs: dict[str, Job] = {}
        self._futures: dict[str, Future[Job]] = {}
        self._passwords: dict[str, str] = {}
        self._engines: dict[str, SharedEngine] = {}
        self._queue: SimpleQueue[str | None] = SimpleQueue()
        self._stopping = False
        self._threads = [
            threading.Thread(target=self._work, name=f"parse-{i}", daemon=True) for i in range(settings.parse_workers)
        ]

    def start(self) -> None:
        """Take up what an earlier run left, and begin to work."""
        for job in self.store.load():
            self._jobs[job.id] = job
            if job.over:
                continue
            job.state = "queued"
            if job.options.has_password:
                self._end(job, "failed", "the server was restarted and does not keep passwords; submit it again")
            else:
                self._enqueue(job)
        for thread in self._threads:
            thread.start()

    def stop(self, timeout: float = 10) -> None:
        """Stop working; what is not done yet is queued again at the next start."""
        with self._lock:
            self._stopping = True
            for engine in self._engines.values():
                engine.interrupt(STOPPING)
        for _ in self._threads:
            self._queue.put(None)
        end = time.monotonic() + timeout
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, end - time.monotonic()))
        with self._lock:
            waited = [(self._jobs[job_id], self._futures.pop(job_id)) for job_id in self._jobs.keys() & self._futures]
        for job, future in waited:
            future.set_result(job)  # it is not over: whoever waits for it is told to come back
        self.store.close()

    def counts(self) -> dict[str, int]:
        """Number of jobs by state."""
        with self._lock:
            found = Counter(str(job.state) for job in self._jobs.values())
        return {state: found.get(state, 0) for state in STATES}

    def check_room(self) -> None:
        """Raise ApiError (429) if no further job is taken."""
        if self._stopping:
            raise ApiError(503, STOPPING, code="shutting_down", retry_after=5)
        counts = self.counts()
        if counts["queued"] + counts["running"] >= self._settings.max_jobs:
            raise busy("too many documents are queued already; try again later", 10)

    def submit(self, job: Job, password: str | None = None) -> Future[Job]:
        """Queue a job whose uploads are in place; the future gives it back when it is over.

        Raises:
            ApiError: 429 when too many are queued; the job's files are removed then.
        """
        try:
            with self._lock:
                self.check_room()
                self._jobs[job.id] = job
                if password:
                    self._passwords[job.id] = password
                self.store.save(job)
                return self._enqueue(job)
        except ApiError:
            self.store.delete(job.id)
            raise

    def _enqueue(self, job: Job) -> Future[Job]:
        future: Future[Job] = Future()
        future.set_running_or_notify_cancel()  # nobody but `_end` decides about it
        self._futures[job.id] = future
        self._queue.put(job.id)
        return future

    def get(self, job_id: str) -> Job:
        """A job.

        Raises:
            ApiError: 404, there is none with this id.
        """
        with self._lock:
            job = self._jobs.get(job_id)
        if job is None:
            raise ApiError(
                404, f"there is no job {job_id[:64]!r}; finished ones are removed after a while", code="job_not_found"
            )
        return job

    def queued_before(self, job: Job) -> int:
        """Jobs that wait in front of this one."""
        with self._lock:
            return sum(j.state == "queued" and j.created < job.created for j in self._jobs.values())

    def remove(self, job_id: str) -> None:
        """Cancel a job if it is not over, and remove it and its files."""
        job = self.get(job_id)
        with self._lock:
            self._jobs.pop(job.id, None)
            engine = self._engines.get(job.id)
            if engine is not None:
                engine.interrupt(CANCELLED)  # its thread removes the files when it has let go of them
                return
            if not job.over:
                self._end(job, "cancelled", CANCELLED)
        self.store.delete(job.id)

    def discard(self, job_id: str) -> None:
        """`remove`, for whoever does not care whether it is still there."""
        with contextlib.suppress(ApiError):
            self.remove(job_id)

    def remove_old(self) -> None:
        """Remove jobs that were over long ago."""
        before = time.time() - self._settings.job_max_age
        with self._lock:
            old = [j.id for j in self._jobs.values() if j.over and (j.finished or j.created) < before]
            for job_id in old:
                del self._jobs[job_id]
        for job_id in old:
            self.store.delete(job_id)

    # From here on: the threads.

    def _work(self) -> None:
        while (job_id := self._queue.get()) is not None:
            with self._lock:
                job = self._jobs.get(job_id)
                if job is None or job.over or self._stopping:
                    continue
                priority = JOB_PRIORITY if job.kind == "job" else 0
                engine = self._engines[job_id] = SharedEngine(self._worker, priority=priority)
                job.state, job.started = "running", time.time()
                job.pages = job.pages_done = 0
                self._say(job)
            limit = self._settings.job_timeout if job.kind == "job" else self._settings.request_timeout
            timer = threading.Timer(limit, engine.interrupt, [TIMED_OUT])
            timer.daemon = True
            timer.start()
            try:
                self._run(job, engine)
            finally:
                timer.cancel()
                engine.close()
                with self._lock:
                    self._engines.pop(job_id, None)
                    self._passwords.pop(job_id, None)
                    if job_id not in self._jobs:
                        self.store.delete(job_id)

    def _run(self, job: Job, engine: SharedEngine) -> None:
        try:
            for path, file in zip(self.store.inputs(job), job.files, strict=True):
                self._parse(job, file, path, engine)
            failed = [f for f in job.files if f.status == "failed"]
            if failed:
                self._end(job, "failed", "; ".join(f.error for f in failed))
            else:
                self._end(job, "done")
        except Interrupted as interrupt:
            if interrupt.reason == STOPPING:
                job.state = "queued"
                self._say(job)
            else:
                self._end(job, "cancelled" if interrupt.reason == CANCELLED else "failed", interrupt.reason)
        except Exception as error:
            logger.error("a job broke", exc_info=error, extra={"event": "job_failure", "job_id": job.id})
            self._end(job, "failed", "an internal error; the server's log has it")

    def _parse(self, job: Job, file: FileState, path: Path, engine: SharedEngine) -> None:
        """One document; what is wrong with it is said on `file`."""
        try:
            options = self._options(job, path)
            detector = choose_detector(engine, options.decoding, self._detector)
            reports = parse_to_folder(
                [path],
                self.store.output(job),
                lambda: engine,
                options,
                model=self._settings.model_name,
                formats=job.options.formats,
                progress=_Follow(job, engine),
                detector=detector,
            )
            for report in reports:
                self._note(file, path, report)
        except MinerUDiffusionError as error:
            file.status, file.error = "failed", from_ours(error).detail

    def _options(self, job: Job, path: Path) -> ParseOptions:
        """Options of one document, its pages checked.

        Raises:
            SourceError, UsageError: it is not taken.
        """
        asked = job.options
        limit = min(DEFAULT_MAX_IMAGE_PIXELS, self._settings.max_image_pixels)
        password = self._passwords.get(job.id)
        with open_source(path, password=password, dpi=asked.dpi, max_image_pixels=limit) as source:
            count = source.page_count
        pages = asked.pages
        if pages is None and (asked.first_page or asked.last_page is not None):
            last = count - 1 if asked.last_page is None else min(asked.last_page, count - 1)
            if asked.first_page > last:
                raise UsageError(f"page {asked.first_page + 1} is asked for, the document has {count} page(s)")
            pages = f"{asked.first_page + 1}-{last + 1}"
        wanted = len(parse_page_range(pages, count))
        if wanted > self._settings.max_pages:
            raise UsageError(f"{wanted} pages are asked for, the server parses {self._settings.max_pages} at most")
        job.pages += wanted
        decoding = decoding_params(policy=asked.policy, threshold=asked.threshold, max_tokens=asked.max_tokens)
        return ParseOptions(
            pages=pages, password=password, dpi=asked.dpi, max_image_pixels=limit, decoding=decoding, window=4
        )

    def _note(self, file: FileState, path: Path, report: FileReport) -> None:
        file.status = "ok" if report.status == "unchanged" else report.status
        file.pages = report.pages
        if report.error is not None:
            file.error = from_ours(report.error).detail
        elif report.status == "failed":
            file.error = f"{file.name}: no page could be read"
        elif report.status == "interrupted":
            raise Interrupted(STOPPING)
        file.warnings = [warning.replace(str(path), file.name) for warning in report.warnings]
        if report.folder is not None:
            file.folder = report.folder.name
            _hide_paths(report.folder, path, file.name)

    def _end(self, job: Job, state: str, error: str = "") -> None:
        with self._lock:
            job.state, job.error, job.finished = state, error, time.time()  # type: ignore[assignment]
            self._say(job)
            future = self._futures.pop(job.id, None)
        logger.info(
            "job over",
            extra={"event": "job", "job_id": job.id, "state": state, "pages": job.pages_done, "error": error},
        )
        if future is not None:
            future.set_result(job)

    def _say(self, job: Job) -> None:
        """Write the state, unless the job was removed or the disk is full: the state in memory counts."""
        if job.id not in self._jobs:
            return
        try:
            self.store.save(job)
        except OSError as error:
            logger.error("a job's state cannot be written", exc_info=error, extra={"event": "disk", "job_id": job.id})


class _Follow:
    """Counts a job's pages, and stops it when it was given up."""

    def __init__(self, job: Job, engine: SharedEngine) -> None:
        self._job = job
        self._engine = engine

    def document_opened(self, path: Path, pages: int) -> None:
        self._engine.check()
        # Documents come one after the other, and an earlier run may have read some pages of this one.
        self._job.pages_done = self._job.pages - pages

    def page_finished(self, path: Path, page: Page) -> None:
        self._job.pages_done += 1
        self._engine.check()

    def crops(self, submitted: int, finished: int) -> None:
        self._engine.check()


def _hide_paths(folder: Path, path: Path, name: str) -> None:
    """Results say the document's name, not where the server keeps it."""
    for file in (*folder.glob("*.json"), *folder.glob("*.html")):
        text = file.read_text(encoding="utf-8")
        inner = json.dumps(str(path), ensure_ascii=False)[1:-1]
        if inner in text:
            temporary = file.with_name(f".writing-{file.name}")
            temporary.write_text(text.replace(inner, name), encoding="utf-8")
            temporary.replace(file)
