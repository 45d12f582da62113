"""Uploaded files to jobs, for all routes that take documents."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TypeVar

import anyio.to_thread
from fastapi import UploadFile

from mineru_diffusion.document.exports import check_formats
from mineru_diffusion.document.inputs import parse_page_range
from mineru_diffusion.errors import MinerUDiffusionError
from mineru_diffusion.parsing.options import ParseOptions, decoding_params
from mineru_diffusion.serving.errors import bad_request, from_ours
from mineru_diffusion.serving.job_store import Job, JobOptions, JobStore, Kind
from mineru_diffusion.serving.state import ServerState, check_limit

MAX_FILES = 32
_MOST_PAGES = 1_000_000
Value = TypeVar("Value")


async def in_thread(state: ServerState, work: Callable[[], Value]) -> Value:
    """Run work on files in a thread."""
    return await anyio.to_thread.run_sync(work, limiter=state.threads)


def check_options(options: JobOptions) -> JobOptions:
    """The options, if a document could be parsed with them.

    Raises:
        ApiError: 400.
    """
    checks: dict[str, Callable[[], object]] = {
        "dpi": lambda: ParseOptions(dpi=options.dpi),
        "policy": lambda: decoding_params(policy=options.policy),
        "threshold": lambda: decoding_params(threshold=options.threshold),
        "max_tokens": lambda: decoding_params(max_tokens=options.max_tokens),
        "pages": lambda: options.pages and parse_page_range(options.pages, _MOST_PAGES),
        "formats": lambda: options.formats and check_formats(",".join(options.formats)),
    }
    for field, check in checks.items():
        try:
            check()
        except MinerUDiffusionError as error:
            raise from_ours(error, field) from error
    return options


async def submit_uploads(
    state: ServerState, kind: Kind, options: JobOptions, uploads: Sequence[UploadFile], password: str | None = None
) -> tuple[Job, Future[Job]]:
    """Store the uploads and queue a job for them.

    Raises:
        ApiError: 400 without a file or with too large a limit, 429 when too many are queued.
    """
    if not uploads or len(uploads) > MAX_FILES:
        raise bad_request(f"between 1 and {MAX_FILES} files are needed, not {len(uploads)}", "file")
    check_limit(options.max_tokens, state)
    state.jobs.check_room()
    job = await in_thread(state, lambda: _store(state.jobs.store, kind, options, uploads))
    return job, state.jobs.submit(job, password)


def _store(store: JobStore, kind: Kind, options: JobOptions, uploads: Sequence[UploadFile]) -> Job:
    job = store.new(kind, options, [upload.filename or "document" for upload in uploads])
    try:
        for upload, path in zip(uploads, store.inputs(job), strict=True):
            with path.open("wb") as target:
                shutil.copyfileobj(upload.file, target)
    except BaseException:
        store.delete(job.id)
        raise
    return job
