"""Documents to files: parse, save crops, write, and take up an earlier run where it stopped.

A document whose output is complete and was made from the same file with the same options is not parsed again; one with
failed pages has only these parsed again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from PIL import Image

from mineru_diffusion.document.crops import crop_region
from mineru_diffusion.document.sources import open_source
from mineru_diffusion.document.types import Document, Page, Region
from mineru_diffusion.document.writer import OutputFolder, OutputWriter
from mineru_diffusion.engine.types import Engine
from mineru_diffusion.errors import MinerUDiffusionError, UsageError
from mineru_diffusion.parsing.layout import choose_detector
from mineru_diffusion.parsing.options import ParseOptions
from mineru_diffusion.parsing.pipeline import Pipeline
from mineru_diffusion.parsing.progress import Counters, Progress

Status = Literal["ok", "partial", "failed", "unchanged"]
OVERLAY_DPI = 110


@dataclass(frozen=True)
class FileReport:
    """What became of one input.

    Attributes:
        status: `ok`; `partial`: written, but a page failed; `failed`: nothing could be read; `unchanged`: the output
            of an earlier run is complete.
        folder: where its files are.
        pages: pages in the written document.
        error: why it failed.
    """

    path: Path
    status: Status
    folder: Path | None = None
    pages: int = 0
    error: MinerUDiffusionError | None = None
    counters: Counters = field(default_factory=Counters)
    warnings: tuple[str, ...] = ()


def parse_to_folder(
    paths: Sequence[Path],
    out_dir: Path,
    load: Callable[[], Engine],
    options: ParseOptions,
    *,
    model: str,
    html: bool = False,
    overlay: bool = False,
    force: bool = False,
    progress: Progress | None = None,
) -> Iterator[FileReport]:
    """Parse files and write each one's output as soon as it is read.

    Args:
        paths: the files.
        out_dir: a folder is made in it for each of them.
        load: makes the engine; called only if there is something to parse. The engine is closed at the end.
        options: see `ParseOptions`.
        model: name of the model, for the output and to tell whether an earlier run was the same.
        html: write HTML as well.
        overlay: write the layout overlay PDF as well.
        force: parse again what an earlier run completed.
        progress: told how it goes.

    Raises:
        UsageError: `out_dir` cannot be used.
        CheckpointError: the engine cannot be loaded.
    """
    writer = OutputWriter(out_dir)
    earlier: dict[Path, Document] = {}
    retries: dict[Path, str] = {}
    todo: list[Path] = []
    for path in paths:
        old = None if force else writer.existing(path)
        if old is None or old.meta.get("run") != _fingerprint(path, model, options):
            todo.append(path)
            continue
        bad = [p.index + 1 for p in old.pages if p.error or any(r.finish_reason == "error" for r in p.regions)]
        if bad:
            earlier[path], retries[path] = old, ",".join(map(str, bad))
            todo.append(path)
        else:
            yield FileReport(path, "unchanged", writer.folder_for(path).directory, len(old.pages))
    if not todo:
        return
    engine = load()
    try:
        detector = choose_detector(engine, options.decoding)
        meta = {"model": model, "dpi": options.dpi, "text_unit": engine.profile.text_unit}
        pipeline = Pipeline(engine, detector, options, progress=progress, on_page=PictureSaver(writer), meta=meta)
        for outcome in pipeline.run(todo, retries):
            path = outcome.path
            if outcome.document is None:
                yield FileReport(path, "failed", error=outcome.error)
                continue
            document = outcome.document
            if path in earlier:
                document = _merged(earlier[path], document)
            document = replace(document, meta={**document.meta, "run": _fingerprint(path, model, options)})
            folder = _write(writer, document, options, html=html, overlay=overlay)
            status: Status = "partial" if any(p.error for p in document.pages) else "ok"
            if document.pages and all(p.error for p in document.pages):
                status = "failed"
            yield FileReport(
                path, status, folder.directory, len(document.pages), None, outcome.counters, document.warnings
            )
    finally:
        engine.close()


@dataclass
class PictureSaver:
    """A page hook that saves the crops of pictures, and of tables and formulas that were not read as such."""

    writer: OutputWriter

    def __call__(self, path: Path, page: Page, image: Image.Image) -> Page:
        regions = [self._saved(self.writer.folder_for(path), page, r, image) for r in page.regions]
        return replace(page, regions=tuple(regions))

    def _saved(self, folder: OutputFolder, page: Page, region: Region, image: Image.Image) -> Region:
        unread = region.source.get("kind") in ("table", "equation")
        if region.kind not in ("image", "chart") and not unread:
            return region
        crop = crop_region(image, region.bbox, region.angle, min_side=0)
        kind = region.source.get("kind", region.kind)
        return replace(region, image_path=folder.save_image(crop, page.index, region.order, kind))


def _write(
    writer: OutputWriter, document: Document, options: ParseOptions, *, html: bool, overlay: bool
) -> OutputFolder:
    if not overlay:
        return writer.write(document, html=html)
    with open_source(
        document.source, password=options.password, dpi=OVERLAY_DPI, max_image_pixels=options.max_image_pixels
    ) as source:
        drawn = ((source.page(page.index).image, page) for page in document.pages if not page.error)
        return writer.write(document, html=html, overlay=drawn)


def _fingerprint(path: Path, model: str, options: ParseOptions) -> dict[str, Any]:
    """What must be equal for an earlier run's output to stand: the file as it was, the model, the options."""
    try:
        stat = path.stat()
    except OSError:
        return {}
    decoding = {k: v for k, v in vars(options.decoding).items() if v is not None}
    return {
        "bytes": stat.st_size,
        "modified": stat.st_mtime_ns,
        "model": model,
        "pages": options.pages,
        "dpi": options.dpi,
        "decoding": decoding,
    }


def _merged(old: Document, new: Document) -> Document:
    """The old document with the pages of the new one in their places."""
    pages = {p.index: p for p in (*old.pages, *new.pages)}
    kept = [w for w in old.warnings if not any(w.startswith(f"page {p.index + 1}:") for p in new.pages)]
    return replace(new, pages=tuple(pages[i] for i in sorted(pages)), warnings=(*kept, *new.warnings))


def check_formats(spec: str) -> frozenset[str]:
    """Output formats from a comma-separated list.

    Raises:
        UsageError: one of them is unknown.
    """
    known = {"md", "json", "html"}
    formats = frozenset(part.strip().lower() for part in spec.split(",") if part.strip())
    if not formats or formats - known:
        wrong = ", ".join(sorted(formats - known)) or "nothing"
        raise UsageError(f"unknown output format: {wrong}; choose from {', '.join(sorted(known))}")
    return formats
