"""The library's front door: `parse` for one document, `parse_many` for any number of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from mineru_diffusion.document.inputs import expand_inputs
from mineru_diffusion.document.types import Document
from mineru_diffusion.engine.types import Engine
from mineru_diffusion.parsing.layout import LayoutDetector, choose_detector
from mineru_diffusion.parsing.options import ParseOptions, decoding_params
from mineru_diffusion.parsing.pipeline import Outcome, PageHook, Pipeline
from mineru_diffusion.parsing.progress import Progress

PACKAGED = "packaged"
"""What `Document.meta["model"]` says for the checkpoint that comes with the package."""


def parse(
    input: str | Path,
    *,
    model: str | Path | None = None,
    pages: str | None = None,
    password: str | None = None,
    dpi: float = 200,
    device: str = "auto",
    dtype: str = "auto",
    threshold: float | None = None,
    policy: str | None = None,
    max_tokens: int | None = None,
    max_rows: int | None = None,
    engine: Engine | None = None,
    detector: LayoutDetector | None = None,
    progress: Progress | None = None,
    on_page: PageHook | None = None,
) -> Document:
    """Parse one PDF or image.

    Args:
        input: the file.
        model: a checkpoint folder; None for the one that comes with the package.
        pages: 1-based, inclusive page range: `3`, `2-5`, `2-`, `1,3-4`; None for all pages.
        password: of an encrypted PDF.
        dpi: resolution at which PDF pages are rendered.
        device: `auto`, `cpu`, `cuda`, ...
        dtype: `auto`, `float32`, `bfloat16` or `float16`.
        threshold: confidence above which a token is decided; None: the checkpoint's.
        policy: `threshold`, `fixed`, `factor` or `entropy`; None: the checkpoint's.
        max_tokens: tokens of one region at most; None: the checkpoint's.
        max_rows: rows (blocks) of a forward pass at most; None: by device.
        engine: use this one, and leave it open; `model`, `device`, `dtype` and `max_rows` are not used then.
        detector: finds the regions; None: as the checkpoint's tasks say.
        progress: told how it goes.
        on_page: called with every finished page and its image; returns the page to keep.

    Returns:
        The document. A page that could not be read has `Page.error` set.

    Raises:
        SourceError: the file cannot be read at all.
        UsageError: an option is wrong, such as a page that the document does not have.
        CheckpointError: the checkpoint cannot be loaded.
    """
    options = ParseOptions(
        pages=pages,
        password=password,
        dpi=dpi,
        decoding=decoding_params(policy=policy, threshold=threshold, max_tokens=max_tokens),
    )
    outcomes = parse_many(
        [Path(input)],
        model=model,
        options=options,
        device=device,
        dtype=dtype,
        max_rows=max_rows,
        engine=engine,
        detector=detector,
        progress=progress,
        on_page=on_page,
        expand=False,
    )
    outcome = next(iter(list(outcomes)))
    if outcome.error is not None:
        raise outcome.error
    assert outcome.document is not None
    return outcome.document


def parse_many(
    inputs: Iterable[str | Path],
    *,
    model: str | Path | None = None,
    options: ParseOptions | None = None,
    device: str = "auto",
    dtype: str = "auto",
    max_rows: int | None = None,
    engine: Engine | None = None,
    detector: LayoutDetector | None = None,
    progress: Progress | None = None,
    on_page: PageHook | None = None,
    expand: bool = True,
) -> Iterator[Outcome]:
    """Parse many documents, crops of all of them batched together.

    Args:
        inputs: files, and with `expand` also folders and globs.
        options: pages, password, resolution and decoding; see `ParseOptions`.
        model, device, dtype, max_rows, engine, detector, progress, on_page: as for `parse`.
        expand: look into folders and globs.

    Yields:
        An `Outcome` for every document, in order: the document, or the error that kept it from being read.

    Raises:
        SourceError, UsageError: an input does not exist, or an option is wrong.
        CheckpointError: the checkpoint cannot be loaded.
    """
    options = options or ParseOptions()
    paths = expand_inputs(inputs) if expand else [Path(i) for i in inputs]
    meta: dict[str, Any] = {"model": str(model) if model is not None else PACKAGED, "dpi": options.dpi}
    if engine is not None:
        meta["model"] = type(engine).__name__ if model is None else str(model)
    owned = engine is None
    if engine is None:
        from mineru_diffusion.engine import load_engine

        engine = load_engine(model, device=device, dtype=dtype, max_rows=max_rows)
    meta |= {"text_unit": engine.profile.text_unit, "objective": engine.profile.objective}
    try:
        chosen = detector or choose_detector(engine, options.decoding)
        yield from Pipeline(engine, chosen, options, progress=progress, on_page=on_page, meta=meta).run(paths)
    finally:
        if owned:
            engine.close()
