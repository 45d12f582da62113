"""Jobs on disk: one folder each, with the uploads, the state and the results, so that they survive a restart.

`<data>/jobs/<id>/job.json`, `input/<n>/<file>`, `output/<document>/...`. Names of clients never lead out of it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from filelock import FileLock, Timeout

from mineru_diffusion.document.names import safe_stem
from mineru_diffusion.errors import UsageError

JobState = Literal["queued", "running", "done", "failed", "cancelled"]
Kind = Literal["job", "sync"]
_ID = re.compile(r"[0-9a-f]{32}")
_SUFFIX = re.compile(r"\.[a-z0-9]{1,8}")


@dataclass(frozen=True)
class JobOptions:
    """How the documents of a job are parsed; see `ParseOptions`. A password is kept in memory only.

    Attributes:
        first_page: index from 0 of the first page, and last_page: of the last one, both cut to the document (MinerU's
            way to ask); not used when `pages` is given.
        formats: written besides Markdown and JSON.
        extra: what a compatible route wants to remember.
    """

    pages: str | None = None
    first_page: int = 0
    last_page: int | None = None
    dpi: float = 200
    threshold: float | None = None
    policy: str | None = None
    max_tokens: int | None = None
    formats: tuple[str, ...] = ()
    has_password: bool = False
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass
class FileState:
    """One document of a job: its name as the client said it, made harmless, and what became of it."""

    name: str
    status: str = "queued"
    folder: str = ""
    pages: int = 0
    error: str = ""
    warnings: list[str] = field(default_factory=list)


@dataclass
class Job:
    """State of one job. Times are seconds since 1970."""

    id: str
    kind: Kind
    options: JobOptions
    files: list[FileState]
    state: JobState = "queued"
    created: float = 0.0
    started: float | None = None
    finished: float | None = None
    error: str = ""
    pages: int = 0
    pages_done: int = 0

    @property
    def over(self) -> bool:
        """Nothing more will happen."""
        return self.state in ("done", "failed", "cancelled")


class JobStore:
    """The jobs below one folder, which is this process's alone until `close`: another server would take its running
    jobs for those of an earlier run.

    Raises:
        UsageError: the folder cannot be made, is another user's, or another server's.
    """

    def __init__(self, data_dir: Path) -> None:
        self._root = data_dir / "jobs"
        self._lock = FileLock(data_dir / "jobs.lock", thread_local=False)
        try:
            self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
            if hasattr(os, "getuid") and self._root.stat().st_uid != os.getuid():
                raise UsageError(f"{data_dir}: belongs to another user; choose another --data-dir")
            self._lock.acquire(timeout=0)
        except Timeout as error:
            raise UsageError(f"{data_dir}: another server keeps its jobs there; choose another --data-dir") from error
        except OSError as error:
            raise UsageError(
                f"{data_dir}: cannot hold jobs: {error.strerror or error}; choose another --data-dir"
            ) from error

    def close(self) -> None:
        """Leave the folder to others; may be called twice."""
        self._lock.release()

    def new(self, kind: Kind, options: JobOptions, names: list[str]) -> Job:
        """A job with its folders; the uploads are to be written to `inputs`."""
        files = [FileState(safe_file_name(name)) for name in names]
        job = Job(uuid.uuid4().hex, kind, options, files, created=time.time())
        for path in self.inputs(job):
            path.parent.mkdir(parents=True)
        self.output(job).mkdir()
        return job

    def folder(self, job_id: str) -> Path:
        """The folder of a job."""
        if _ID.fullmatch(job_id) is None:
            raise ValueError(f"not the id of a job: {job_id!r}")
        return self._root / job_id

    def inputs(self, job: Job) -> list[Path]:
        """Where its uploads are."""
        folder = self.folder(job.id) / "input"
        return [folder / f"{i:03d}" / file.name for i, file in enumerate(job.files)]

    def output(self, job: Job) -> Path:
        """Where its results are."""
        return self.folder(job.id) / "output"

    def save(self, job: Job) -> None:
        """Write the state, in one step."""
        target = self.folder(job.id) / "job.json"
        temporary = target.with_name(f".job-{uuid.uuid4().hex}")
        temporary.write_text(json.dumps(asdict(job), ensure_ascii=False, indent=1), encoding="utf-8")
        os.replace(temporary, target)

    def delete(self, job_id: str) -> None:
        """Remove a job and all its files."""
        shutil.rmtree(self.folder(job_id), ignore_errors=True)

    def load(self) -> Iterator[Job]:
        """The jobs of an earlier run, oldest first. What is broken, or belonged to a request, is removed."""
        found = []
        for folder in self._root.iterdir():
            if _ID.fullmatch(folder.name) is None:
                continue
            job = _read(folder / "job.json")
            if job is None or job.kind == "sync" or job.id != folder.name:
                self.delete(folder.name)
            else:
                found.append(job)
        yield from sorted(found, key=lambda job: job.created)


def _read(path: Path) -> Job | None:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        options = data.pop("options")
        options = JobOptions(**{**options, "formats": tuple(options["formats"])})
        files = [FileState(**{**file, "name": safe_file_name(file["name"])}) for file in data.pop("files")]
        return Job(options=options, files=files, **data)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def safe_file_name(name: str) -> str:
    """The last part of a client's file name, legal everywhere; its suffix stays if it is an ordinary one."""
    last = PurePosixPath(name.replace("\\", "/")).name
    path = PurePosixPath(last)
    suffix = path.suffix.lower()
    if _SUFFIX.fullmatch(suffix) is None:
        return safe_stem(last)
    return safe_stem(path.stem) + suffix
