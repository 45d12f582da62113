"""What a finished job gives: JSON, Markdown or a zip of its files, and MinerU's form of the same."""

from __future__ import annotations

import base64
import json
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mineru_diffusion.serving.job_store import FileState, Job, JobStore

IMAGES = "images"


def status_of(job: Job, queued_before: int | None = None) -> dict[str, Any]:
    """The state of a job, for `/v1/jobs/{id}`."""
    return {
        "id": job.id,
        "object": "job",
        "status": job.state,
        "created": job.created,
        "started": job.started,
        "finished": job.finished,
        "queued_before": queued_before,
        "progress": {"pages": job.pages, "pages_done": job.pages_done},
        "files": [
            {"name": f.name, "status": f.status, "pages": f.pages, "error": f.error or None, "warnings": f.warnings}
            for f in job.files
        ],
        "error": job.error or None,
    }


def folder_of(store: JobStore, job: Job, file: FileState) -> Path:
    """Where a document's results are."""
    return store.output(job) / file.folder


def json_result(store: JobStore, job: Job, *, images: bool) -> dict[str, Any]:
    """A job's single document: Markdown, MinerU's content list, our own JSON, and pictures as data URIs if wanted."""
    (file,) = job.files
    folder = folder_of(store, job, file)
    result = {
        "id": job.id,
        "object": "document",
        "file": file.name,
        "status": file.status,
        "pages": file.pages,
        "warnings": file.warnings,
        "markdown": _text(folder, file, ".md"),
        "content_list": json.loads(_text(folder, file, "_content_list.json") or "[]"),
        "document": json.loads(_text(folder, file, ".json") or "null"),
    }
    if images:
        result[IMAGES] = _pictures(folder)
    return result


def markdown_result(store: JobStore, job: Job) -> str:
    """A job's single document as Markdown."""
    (file,) = job.files
    return _text(folder_of(store, job, file), file, ".md") or ""


def zip_result(store: JobStore, job: Job, *, originals: bool = False) -> Path:
    """A zip of all files of all documents, below the documents' names. The caller removes it; if not, it goes with the
    job, in whose folder it is."""
    with tempfile.NamedTemporaryFile(dir=store.folder(job.id), prefix=".", suffix=".zip", delete=False) as target:
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
            for file, source in zip(job.files, store.inputs(job), strict=True):
                if not file.folder:
                    continue
                folder = folder_of(store, job, file)
                for path in _visible(folder):
                    archive.write(path, f"{file.folder}/{path.relative_to(folder).as_posix()}")
                if originals:
                    archive.write(source, f"{file.folder}/{file.folder}_origin{source.suffix}")
        return Path(target.name)


def mineru_results(store: JobStore, job: Job, wanted: dict[str, bool]) -> dict[str, dict[str, Any]]:
    """Documents by stem in the form of MinerU's parse server: files' contents as strings, pictures as data URIs.

    Args:
        wanted: MinerU's `return_*` switches. There is no `middle_json` and no `model_output`: null.
    """
    results: dict[str, dict[str, Any]] = {}
    for file in job.files:
        if not file.folder:
            continue
        folder = folder_of(store, job, file)
        found: dict[str, Any] = {}
        if wanted.get("return_md"):
            found["md_content"] = _text(folder, file, ".md")
        if wanted.get("return_middle_json"):
            found["middle_json"] = None
        if wanted.get("return_model_output"):
            found["model_output"] = None
        if wanted.get("return_content_list"):
            found["content_list"] = _text(folder, file, "_content_list.json")
        if wanted.get("return_images"):
            found[IMAGES] = _pictures(folder)
        results[file.folder] = found
    return results


def _text(folder: Path, file: FileState, ending: str) -> str | None:
    path = folder / f"{file.folder}{ending}"
    return path.read_text(encoding="utf-8") if path.is_file() else None


def _visible(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts):
            yield path


def _pictures(folder: Path) -> dict[str, str]:
    images = folder / IMAGES
    paths = sorted(images.glob("*.png")) if images.is_dir() else []
    return {path.name: "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode() for path in paths}
