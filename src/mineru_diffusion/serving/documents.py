"""`/v1/parse` and `/v1/jobs`: whole documents, at once or in the background."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, File, Form, Request, UploadFile
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse, Response

from mineru_diffusion.parsing.options import POLICIES
from mineru_diffusion.serving.disconnect import ThenDo, or_disconnect
from mineru_diffusion.serving.errors import ApiError
from mineru_diffusion.serving.job_store import Job, JobOptions
from mineru_diffusion.serving.jobs import TIMED_OUT
from mineru_diffusion.serving.media import form_only
from mineru_diffusion.serving.results import json_result, markdown_result, status_of, zip_result
from mineru_diffusion.serving.state import ServerState, state_of
from mineru_diffusion.serving.uploads import check_options, in_thread, submit_uploads

router = APIRouter()

ResultFormat = Literal["json", "md", "zip"]


def job_options(
    pages: Annotated[str | None, Form(description="1-based, inclusive: 3, 2-5, 2-, 1,3-4.", max_length=1000)] = None,
    dpi: Annotated[float, Form(description="Resolution of PDF pages.", ge=36, le=600)] = 200,
    threshold: Annotated[float | None, Form(description="Confidence above which a token is decided.")] = None,
    policy: Annotated[str | None, Form(description=f"One of {', '.join(POLICIES)}.")] = None,
    max_tokens: Annotated[int | None, Form(description="Tokens of one region at most.")] = None,
    formats: Annotated[
        str, Form(description="Further files for the zip: html, layout, searchable-pdf, ...", max_length=200)
    ] = "",
    password: Annotated[str | None, Form(description="Of an encrypted PDF.", max_length=1000)] = None,
) -> JobOptions:
    """The form fields that say how to parse."""
    names = tuple(sorted(part.strip() for part in formats.split(",") if part.strip()))
    return check_options(
        JobOptions(
            pages=pages or None,
            dpi=dpi,
            threshold=threshold,
            policy=policy or None,
            max_tokens=max_tokens,
            formats=names,
            has_password=bool(password),
        )
    )


Options = Annotated[JobOptions, Depends(job_options)]
Upload = Annotated[UploadFile, File(description="A PDF or an image.")]
Password = Annotated[str | None, Form(max_length=1000)]


@router.post("/v1/parse", response_model=None, dependencies=[Depends(form_only)])
async def parse(
    request: Request,
    file: Upload,
    options: Options,
    password: Password = None,
    output: Annotated[ResultFormat, Form(description="Form of the answer.")] = "json",
    images: Annotated[bool, Form(description="Put pictures into the JSON, as data URIs.")] = False,
) -> Response:
    """Parse a document and wait for it. A client that goes away ends the work."""
    state = state_of(request)
    job, future = await submit_uploads(state, "sync", options, [file], password)
    remove = True
    try:

        async def wait() -> None:
            await asyncio.wrap_future(future)

        if not await or_disconnect(request, wait()):
            return Response(status_code=499)
        # The files may be read while the answer is sent.
        response = ThenDo(await _result(state, job, output, images), lambda: state.jobs.discard(job.id))
        remove = False
        return response
    finally:
        if remove:
            state.jobs.discard(job.id)


@router.post("/v1/jobs", status_code=202, dependencies=[Depends(form_only)])
async def submit_job(request: Request, file: Upload, options: Options, password: Password = None) -> JSONResponse:
    """Parse a document in the background."""
    state = state_of(request)
    job, _ = await submit_uploads(state, "job", options, [file], password)
    return JSONResponse(_status(state, job), 202, {"Location": f"/v1/jobs/{job.id}"})


@router.get("/v1/jobs/{job_id}")
async def job_status(request: Request, job_id: str) -> JSONResponse:
    """How far a job is."""
    state = state_of(request)
    return JSONResponse(_status(state, state.jobs.get(job_id)))


@router.get("/v1/jobs/{job_id}/result", response_model=None)
async def job_result(request: Request, job_id: str, output: ResultFormat = "json", images: bool = False) -> Response:
    """What a job gave; 202 with its state while it is not over."""
    state = state_of(request)
    job = state.jobs.get(job_id)
    if not job.over:
        return JSONResponse(_status(state, job), 202, {"Retry-After": "1"})
    return await _result(state, job, output, images)


@router.delete("/v1/jobs/{job_id}")
async def delete_job(request: Request, job_id: str) -> dict[str, object]:
    """Cancel a job, if it is not over, and remove it with all its files."""
    state = state_of(request)
    await in_thread(state, lambda: state.jobs.remove(job_id))
    return {"id": job_id, "object": "job", "deleted": True}


def _status(state: ServerState, job: Job) -> dict[str, object]:
    return status_of(job, state.jobs.queued_before(job) if job.state == "queued" else None)


async def _result(state: ServerState, job: Job, output: ResultFormat, images: bool) -> Response:
    """The answer for a job that is over.

    Raises:
        ApiError: it failed or was cancelled.
    """
    if job.state != "done":
        raise job_error(job)
    store = state.jobs.store
    if output == "md":
        text = await in_thread(state, lambda: markdown_result(store, job))
        return PlainTextResponse(text, media_type="text/markdown")
    if output == "zip":
        return zip_response(await in_thread(state, lambda: zip_result(store, job)), f"{job.files[0].folder}.zip")
    return JSONResponse(await in_thread(state, lambda: json_result(store, job, images=images)))


def job_error(job: Job) -> ApiError:
    """What went wrong with a job: the document's fault, the clock's or the server's."""
    if not job.over:
        return ApiError(503, "the server is shutting down", code="shutting_down", retry_after=5)
    if job.state == "cancelled":
        return ApiError(409, "the job was cancelled", code="job_cancelled")
    if job.error == TIMED_OUT:
        return ApiError(504, "the document took too long; send it to /v1/jobs or ask for fewer pages", code="timeout")
    fault = any(file.status == "failed" for file in job.files)
    return ApiError(422 if fault else 500, job.error, code="unreadable_document" if fault else "job_failed")


def zip_response(path: Path, name: str) -> Response:
    """A zip that is removed when it is sent."""
    return ThenDo(FileResponse(path, media_type="application/zip", filename=name), lambda: path.unlink(missing_ok=True))
