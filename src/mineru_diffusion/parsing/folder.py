"""Documents to files: parse, save crops, write, and take up an earlier run where it stopped.

A document whose output is complete and was made from the same content with the same model and options is not parsed
again; if only the formats differ, it is written again from its JSON. Of one with failed pages, or one that a run was
stopped in, only the missing pages are parsed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from PIL import Image

from mineru_diffusion.document.crops import crop_region
from mineru_diffusion.document.export_options import ExportOptions
from mineru_diffusion.document.exports import ALWAYS, DrawnPages
from mineru_diffusion.document.manifest import Manifest, content_hash, read_manifest
from mineru_diffusion.document.sources import open_source
from mineru_diffusion.document.types import Document, Page, Region
from mineru_diffusion.document.writer import OutputFolder, OutputWriter
from mineru_diffusion.engine.types import Engine
from mineru_diffusion.errors import MinerUDiffusionError, OutputError
from mineru_diffusion.parsing.journal import Journal, read_journal
from mineru_diffusion.parsing.layout import LayoutDetector, choose_detector
from mineru_diffusion.parsing.options import ParseOptions
from mineru_diffusion.parsing.pipeline import Outcome, Pipeline
from mineru_diffusion.parsing.prepare import Job
from mineru_diffusion.parsing.progress import Counters, Progress
from mineru_diffusion.parsing.record import PageResult

Status = Literal["ok", "partial", "failed", "unchanged", "interrupted"]


@dataclass(frozen=True)
class FileReport:
    """What became of one input.

    Attributes:
        status: `ok`; `partial`: written, but a page or region failed; `failed`: nothing could be read or written;
            `unchanged`: the output of an earlier run is complete; `interrupted`: begun, and goes on in the next run.
        folder: where its files are.
        pages: pages in the written document.
        failed_pages: numbers, from 1, of the pages that could not be read, or only in part.
        error: why it failed.
        counters: what this run did for it.
        seconds: from its opening to its end.
    """

    path: Path
    status: Status
    folder: Path | None = None
    pages: int = 0
    failed_pages: tuple[int, ...] = ()
    error: MinerUDiffusionError | None = None
    counters: Counters = field(default_factory=Counters)
    warnings: tuple[str, ...] = ()
    seconds: float = 0.0


def parse_to_folder(
    paths: Sequence[Path],
    out_dir: Path,
    load: Callable[[], Engine],
    options: ParseOptions,
    *,
    model: str,
    formats: Iterable[str] = (),
    export: ExportOptions | None = None,
    force: bool = False,
    progress: Progress | None = None,
    stop: Callable[[], bool] = lambda: False,
    detector: LayoutDetector | None = None,
) -> Iterator[FileReport]:
    """Parse files and write each one's output as soon as it is read.

    Args:
        paths: the files.
        out_dir: a folder is made in it for each of them that can be read.
        load: makes the engine; called only if there is something to parse. The engine is closed at the end.
        options: see `ParseOptions`.
        model: name of the model, for the output and to tell whether an earlier run was the same.
        formats: see `exports.FORMATS`; Markdown and JSON are always written.
        export: how they are written.
        force: parse again what an earlier run completed.
        progress: told how it goes.
        stop: asked between pages; once true, what is in flight is finished and the rest left for another run.
        detector: finds the regions; None: as the checkpoint's tasks say.

    Raises:
        UsageError: `out_dir` cannot be used.
        CheckpointError: the engine cannot be loaded.
        EngineError: the engine failed again and again.
        OutputError: nothing can be written any more.
    """
    with OutputWriter(out_dir) as writer:
        batch = _Batch(writer, options, model, tuple(sorted({*ALWAYS, *formats})), export or ExportOptions(), force)
        todo = []
        for path in paths:
            if stop():
                return
            report = batch.unchanged(path)
            if report is None:
                todo.append(path)
            else:
                yield report
        if not todo:
            return
        engine = load()
        try:
            detector = detector or choose_detector(engine, options.decoding)
            meta = {"model": model, "dpi": options.dpi, "text_unit": engine.profile.text_unit}
            pipeline = Pipeline(
                engine,
                detector,
                options,
                progress=progress,
                on_page=PictureSaver(writer),
                meta=meta,
                keeper=batch,
                stop=stop,
            )
            for outcome in pipeline.run(batch.job(path) for path in todo):
                yield batch.finish(outcome)
        finally:
            batch.close()
            engine.close()


class _Batch:
    """The files of one run: what of them is known, kept and written. A `Keeper` for the pipeline."""

    def __init__(
        self,
        writer: OutputWriter,
        options: ParseOptions,
        model: str,
        formats: tuple[str, ...],
        export: ExportOptions,
        force: bool,
    ) -> None:
        self._writer = writer
        self._options = options
        self._model = model
        self._formats = formats
        self._export = export
        self._force = force
        self._parsed: dict[Path, dict[str, Any]] = {}
        self._journals: dict[Path, Journal] = {}

    def unchanged(self, path: Path) -> FileReport | None:
        """A report if nothing of this file is to be read again; missing formats are written on the way."""
        folder = None if self._force else self._writer.find(path)
        manifest = None if folder is None else read_manifest(folder.directory)
        if folder is None or manifest is None or not manifest.complete:
            return None
        if manifest.parsed != self._fingerprint(path):
            return None
        document = self._writer.existing(path)
        pictures = [name for name in manifest.files if "/" in name]
        if document is None or not all((folder.directory / name).is_file() for name in pictures):
            return None
        whole = all((folder.directory / name).is_file() for name in manifest.files)
        if not whole or manifest.exported != self._exported():
            try:
                self._write(replace(document, source=str(path)), manifest.parsed)
            except MinerUDiffusionError as error:
                return FileReport(path, "failed", folder.directory, len(document.pages), error=error)
        return FileReport(path, "unchanged", folder.directory, len(document.pages))

    def job(self, path: Path) -> Job:
        """The work on a file, less the pages that an earlier run has finished. Called in the preparing thread."""
        parsed = self._fingerprint(path)
        self._parsed[path] = parsed
        folder = None if self._force else self._writer.find(path)
        return Job(path) if folder is None else Job(path, read_journal(folder.directory, parsed))

    def opened(self, path: Path) -> None:
        """See `Keeper`. Folders are taken in the order of the files, so that the same file gets the same name."""
        folder = self._writer.folder_for(path)
        self._journals[path] = Journal(folder.directory, self._parsed[path], fresh=self._force)

    def finished(self, path: Path, result: PageResult) -> None:
        """See `Keeper`."""
        if path in self._journals:
            self._journals[path].add(result)

    def finish(self, outcome: Outcome) -> FileReport:
        """Write what there is and say how it went."""
        path, document = outcome.path, outcome.document
        journal = self._journals.pop(path, None)
        parsed = self._parsed.pop(path)
        try:
            if document is None:
                found = self._writer.find(path)
                return FileReport(
                    path,
                    "interrupted" if outcome.interrupted else "failed",
                    None if found is None else found.directory,
                    error=outcome.error,
                    counters=outcome.counters,
                    seconds=outcome.seconds,
                )
            try:
                folder = self._write(document, parsed)
            except MinerUDiffusionError as error:
                if isinstance(error, OutputError) and error.fatal:
                    raise
                return FileReport(path, "failed", error=error, counters=outcome.counters, seconds=outcome.seconds)
            failed = _failed_pages(document)
            if journal is not None and not failed:
                journal.remove()
            unread = bool(document.pages) and all(page.error for page in document.pages)
            return FileReport(
                path,
                "failed" if unread else "partial" if failed else "ok",
                folder.directory,
                len(document.pages),
                failed,
                None,
                outcome.counters,
                document.warnings,
                outcome.seconds,
            )
        finally:
            if journal is not None:
                journal.close()

    def close(self) -> None:
        """Close what a run that was stopped has left open."""
        for journal in self._journals.values():
            journal.close()
        self._journals.clear()

    def _write(self, document: Document, parsed: dict[str, Any]) -> OutputFolder:
        manifest = Manifest(parsed, self._exported(), complete=not _failed_pages(document))
        try:
            return self._writer.write(
                document, self._formats, self._export, pages=self._pages(document), manifest=manifest
            )
        except (MinerUDiffusionError, KeyboardInterrupt):
            raise
        except Exception as error:  # one document must not take the others with it
            cause = f"its output cannot be made: {type(error).__name__}: {error}"
            raise OutputError(document.source, cause, "report it with the file") from error

    def _pages(self, document: Document) -> DrawnPages:
        def render(dpi: float) -> Iterator[tuple[Image.Image, Page]]:
            with open_source(
                document.source,
                password=self._options.password,
                dpi=dpi,
                max_image_pixels=self._options.max_image_pixels,
            ) as source:
                for page in document.pages:
                    if not page.error:
                        yield source.page(page.index).image, page

        return render

    def _exported(self) -> dict[str, Any]:
        return _plain({"formats": self._formats, **asdict(self._export)})

    def _fingerprint(self, path: Path) -> dict[str, Any]:
        """What must be equal for an earlier run's pages to stand: the content, the model, the options."""
        try:
            digest = content_hash(path)
        except OSError:
            digest = ""  # opening it will tell why
        return _plain(
            {
                "sha256": digest,
                "model": self._model,
                "pages": self._options.pages,
                "dpi": self._options.dpi,
                "decoding": {k: v for k, v in asdict(self._options.decoding).items() if v is not None},
            }
        )


@dataclass
class PictureSaver:
    """A page hook that saves the crops of pictures, tables and formulas; MinerU's tools expect them all."""

    writer: OutputWriter

    def __call__(self, path: Path, page: Page, image: Image.Image) -> Page:
        regions = [self._saved(self.writer.folder_for(path), page, r, image) for r in page.regions]
        return replace(page, regions=tuple(regions))

    def _saved(self, folder: OutputFolder, page: Page, region: Region, image: Image.Image) -> Region:
        kind = region.source.get("kind", region.kind)
        if kind not in ("image", "chart", "table", "equation"):
            return region
        crop = crop_region(image, region.bbox, region.angle, min_side=0)
        return replace(region, image_path=folder.save_image(crop, page.index, region.order, kind))


def _failed_pages(document: Document) -> tuple[int, ...]:
    """Numbers, from 1, of pages that could not be read, or not all of whose regions could be."""
    return tuple(p.index + 1 for p in document.pages if not PageResult(p).complete)


def _plain(value: dict[str, Any]) -> dict[str, Any]:
    """As JSON gives it back, so that a record that was stored equals the same one made anew."""
    plain: dict[str, Any] = json.loads(json.dumps(value))
    return plain
