"""The routes of MinerU's own parse server, so that its clients find what they know: `/file_parse` and `/tasks`.

Fields that choose MinerU's backends, languages and methods are taken and change nothing: there is one engine here. A
`server_url` is never followed.
"""

from __future__ import annotations

import asyncio
from datetime import datetime, timezone
from typing import Annotated, Any

from fastapi import APIRouter, Depends, File, Form, Request, UploadFile
from fastapi.responses import JSONResponse, Response

from mineru_diffusion import __version__
from mineru_diffusion.serving.disconnect import or_disconnect
from mineru_diffusion.serving.documents import job_error, zip_response
from mineru_diffusion.serving.job_store import Job, JobOptions
from mineru_diffusion.serving.media import form_only
from mineru_diffusion.serving.results import mineru_results, zip_result
from mineru_diffusion.serving.state import ServerState, state_of
from mineru_diffusion.serving.uploads import in_thread, submit_uploads

router = APIRouter()

BACKEND = "mineru-diffusion"
_EVERY_PAGE = 99_999
_STATES = {"queued": "pending", "running": "processing", "done": "completed", "failed": "failed", "cancelled": "failed"}


def task_options(
    return_md: Annotated[bool, Form()] = True,
    return_middle_json: Annotated[bool, Form()] = False,
    return_model_output: Annotated[bool, Form()] = False,
    return_content_list: Annotated[bool, Form()] = False,
    return_images: Annotated[bool, Form()] = False,
    response_format_zip: Annotated[bool, Form()] = False,
    return_original_file: Annotated[bool, Form()] = False,
    start_page_id: Annotated[int, Form(ge=0)] = 0,
    end_page_id: Annotated[int, Form(ge=0)] = _EVERY_PAGE,
) -> JobOptions:
    """MinerU's form fields that mean something here."""
    wanted = {
        "return_md": return_md,
        "return_middle_json": return_middle_json,
        "return_model_output": return_model_output,
        "return_content_list": return_content_list,
        "return_images": return_images,
        "response_format_zip": response_format_zip,
        "return_original_file": return_original_file and response_format_zip,
    }
    last = None if end_page_id >= _EVERY_PAGE else end_page_id
    return JobOptions(first_page=start_page_id, last_page=last, extra=wanted)


Options = Annotated[JobOptions, Depends(task_options)]
Files = Annotated[list[UploadFile], File(description="PDFs and images.")]


@router.post("/file_parse", response_model=None, dependencies=[Depends(form_only)])
async def file_parse(request: Request, files: Files, options: Options) -> Response:
    """Parse documents and wait for them. The task stays, as with MinerU, and its age limit holds."""
    state = state_of(request)
    job, future = await submit_uploads(state, "job", options, files)

    async def wait() -> None:
        await asyncio.wrap_future(future)

    if not await or_disconnect(request, wait()):
        state.jobs.discard(job.id)
        return Response(status_code=499)
    if not job.over:  # the server stops
        raise job_error(job)
    if job.state != "done":
        return _failed(request, job)
    return await _answer(request, state, job, _payload(request, job))


@router.post("/tasks", status_code=202, dependencies=[Depends(form_only)])
async def submit_task(request: Request, files: Files, options: Options) -> JSONResponse:
    """Parse documents in the background."""
    state = state_of(request)
    job, _ = await submit_uploads(state, "job", options, files)
    before = state.jobs.queued_before(job)
    payload = {**_payload(request, job), "queued_ahead": before, "message": "Task submitted successfully"}
    return JSONResponse(payload, 202)


@router.get("/tasks/{task_id}")
async def task_status(request: Request, task_id: str) -> dict[str, Any]:
    """How far a task is."""
    state = state_of(request)
    job = state.jobs.get(task_id)
    return {**_payload(request, job), "queued_ahead": state.jobs.queued_before(job) if job.state == "queued" else 0}


@router.get("/tasks/{task_id}/result", response_model=None)
async def task_result(request: Request, task_id: str) -> Response:
    """What a task gave: 202 while it is not over, 409 if it failed."""
    state = state_of(request)
    job = state.jobs.get(task_id)
    if not job.over:
        return JSONResponse({**_payload(request, job), "message": "Task result is not ready yet"}, 202)
    if job.state != "done":
        return _failed(request, job)
    return await _answer(request, state, job, {})


def _failed(request: Request, job: Job) -> JSONResponse:
    return JSONResponse({**_payload(request, job), "message": "Task execution failed"}, 409)


async def _answer(request: Request, state: ServerState, job: Job, head: dict[str, Any]) -> Response:
    wanted = job.options.extra
    store = state.jobs.store
    if wanted.get("response_format_zip"):
        path = await in_thread(
            state, lambda: zip_result(store, job, originals=bool(wanted.get("return_original_file")))
        )
        return zip_response(path, f"{job.id}.zip")
    results = await in_thread(state, lambda: mineru_results(store, job, wanted))
    return JSONResponse({**head, "backend": BACKEND, "version": __version__, "results": results})


def _payload(request: Request, job: Job) -> dict[str, Any]:
    return {
        "task_id": job.id,
        "status": _STATES[job.state],
        "backend": BACKEND,
        "file_names": [file.name.rpartition(".")[0] or file.name for file in job.files],
        "created_at": _iso(job.created),
        "started_at": _iso(job.started),
        "completed_at": _iso(job.finished),
        "error": job.error or None,
        "status_url": str(request.url_for("task_status", task_id=job.id)),
        "result_url": str(request.url_for("task_result", task_id=job.id)),
    }


def _iso(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, timezone.utc).isoformat()
