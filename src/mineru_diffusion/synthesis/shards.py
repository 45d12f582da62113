"""Samples in Parquet files, and back: whole files or parts of them, one row at a time in memory.

The columns are those that the `datasets` library reads as an image data set: `image` (struct of PNG `bytes` and
`path`), `task`, `target`, `layout` (list of structs), `source` (JSON text).
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from mineru_diffusion.errors import MissingExtra, SourceError, UsageError
from mineru_diffusion.synthesis.sample import LayoutBox, Sample

if TYPE_CHECKING:
    import pyarrow as pa

SHARD_SIZE = 1000
_GROUP = 64
"""Rows of a row group: what a reader must load at least."""
_PART = ".part"


def write_shards(
    samples: Iterable[Sample], out: str | Path, *, shard_size: int = SHARD_SIZE, prefix: str = "shard"
) -> list[Path]:
    """Write samples in their order to `out/<prefix>-00000.parquet` and so on, each file whole or not at all.

    Raises:
        UsageError: `shard_size` is below 1.
        MissingExtra: pyarrow is not installed.
    """
    if shard_size < 1:
        raise UsageError(f"bad shard size {shard_size}: use at least 1")
    paths: list[Path] = []
    rest = iter(samples)
    while (first := next(rest, None)) is not None:
        path = shard_path(out, len(paths), prefix)
        write_shard(chain([first], islice(rest, shard_size - 1)), path)
        paths.append(path)
    return paths


def shard_path(out: str | Path, number: int, prefix: str = "shard") -> Path:
    """Where shard `number` (from 0) of a folder lies."""
    return Path(out) / f"{prefix}-{number:05d}.parquet"


def write_shard(samples: Iterable[Sample], path: Path) -> None:
    """One file, whole or not at all: it is written under another name first.

    Raises:
        MissingExtra: pyarrow is not installed.
    """
    pa, parquet = _arrow()
    schema = _schema()
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}{_PART}")
    rest = map(_to_row, samples)
    try:
        with parquet.ParquetWriter(part, schema, compression="zstd") as writer:
            while rows := list(islice(rest, _GROUP)):
                writer.write_table(pa.Table.from_pylist(rows, schema=schema))
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def remove_parts(out: Path) -> None:
    """Delete what a run that was killed left half written."""
    for part in out.glob(f"*{_PART}"):
        part.unlink()


def read_shards(paths: Sequence[str | Path]) -> Iterator[Sample]:
    """All samples of the files, in order, loaded a few at a time.

    Raises:
        SourceError: a file is missing or is no shard.
        MissingExtra: pyarrow is not installed.
    """
    for path in paths:
        yield from _read(Path(path), None)


def read_rows(path: str | Path, first: int, last: int) -> list[Sample]:
    """Rows `first` to `last` (not included) of one file; only the row groups that hold them are read.

    Raises:
        SourceError: the file is missing or is no shard.
        MissingExtra: pyarrow is not installed.
    """
    return list(_read(Path(path), range(first, last)))


def count_rows(path: str | Path) -> int:
    """Number of samples in one file, from its footer.

    Raises:
        SourceError: the file is missing or is no shard.
        MissingExtra: pyarrow is not installed.
    """
    with _open(Path(path)) as file:
        return int(file.metadata.num_rows)


def png_bytes(sample: Sample) -> bytes:
    """The image as a PNG file."""
    buffer = io.BytesIO()
    Image.fromarray(sample.image).save(buffer, "PNG", compress_level=4)
    return buffer.getvalue()


def _read(path: Path, wanted: range | None) -> Iterator[Sample]:
    with _open(path) as file:
        start = 0
        for group in range(file.num_row_groups):
            end = start + file.metadata.row_group(group).num_rows
            rows = range(start, end) if wanted is None else range(max(start, wanted.start), min(end, wanted.stop))
            if len(rows):
                table = file.read_row_group(group).slice(rows.start - start, len(rows))
                for row, values in zip(rows, table.to_pylist(), strict=True):
                    yield _from_row(values, path, row)
            start = end


def _open(path: Path) -> Any:
    pa, parquet = _arrow()
    try:
        file = parquet.ParquetFile(path)
    except (OSError, pa.ArrowException) as error:
        raise SourceError(
            path, f"cannot be read as Parquet: {error}", "make it again with `mineru-diffusion synth`"
        ) from error
    missing = set(_schema().names) - set(file.schema_arrow.names)
    if missing:
        file.close()
        raise SourceError(path, f"lacks the column(s) {', '.join(sorted(missing))}", "pass shards written by `synth`")
    return file


def _to_row(sample: Sample) -> dict[str, Any]:
    return {
        "image": {"bytes": png_bytes(sample), "path": None},
        "task": sample.task,
        "target": sample.target,
        "layout": [
            {"kind": b.kind, "bbox": list(b.bbox), "content": b.content, "angle": b.angle} for b in sample.layout
        ],
        "source": json.dumps(sample.source, ensure_ascii=False),
    }


def _from_row(row: dict[str, Any], path: Path, number: int) -> Sample:
    try:
        with Image.open(io.BytesIO(row["image"]["bytes"])) as image:
            pixels = np.asarray(image if image.mode in ("L", "RGB") else image.convert("RGB"))
        boxes = tuple(LayoutBox(b["kind"], tuple(b["bbox"]), b["content"], b["angle"]) for b in row["layout"] or ())
        return Sample(pixels, row["task"], row["target"], boxes, json.loads(row["source"]))
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise SourceError(
            path, f"row {number} is damaged: {error}", "make it again with `mineru-diffusion synth`"
        ) from error


def _schema() -> pa.Schema:
    pa, _ = _arrow()
    box = {"kind": pa.string(), "bbox": pa.list_(pa.float64()), "content": pa.string(), "angle": pa.int32()}
    value = {name: {"dtype": name, "_type": "Value"} for name in ("string", "float64", "int32")}
    features = {
        "image": {"_type": "Image"},
        "task": value["string"],
        "target": value["string"],
        "layout": [
            {
                "kind": value["string"],
                "bbox": {"feature": value["float64"], "_type": "Sequence"},
                "content": value["string"],
                "angle": value["int32"],
            }
        ],
        "source": value["string"],
    }
    return pa.schema(
        {
            "image": pa.struct({"bytes": pa.binary(), "path": pa.string()}),
            "task": pa.string(),
            "target": pa.string(),
            "layout": pa.list_(pa.struct(box)),
            "source": pa.string(),
        },
        metadata={"huggingface": json.dumps({"info": {"features": features}})},
    )


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtra("reading and writing Parquet shards", "train") from error
    return pyarrow, pyarrow.parquet
