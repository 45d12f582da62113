"""The one row format of all data sets made here: a PNG, a task, the target text, and where it comes from.

In: a sample. Out: a DataRow, and dictionaries of plain values for Parquet, Arrow or JSON writers.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from PIL import Image

from mineru_diffusion.errors import UsageError
from mineru_diffusion.synthesis.lines import LineSample

TASKS = ("text", "table", "formula", "layout", "image")


@dataclass(frozen=True)
class DataRow:
    """Attributes:
    image: PNG file.
    task: one of TASKS: what is asked about the image.
    target: the right answer.
    source: what made the row, for example "lines" or a document's name.
    provenance: facts for tracing the row back (seed, number, font, licence); plain values only.
    layout: optional regions or edges, as plain values that JSON can hold.

    Raises:
        UsageError: unknown task, or an image that is no PNG.
    """

    image: bytes
    task: str
    target: str
    source: str
    provenance: dict[str, str | int | float] = field(default_factory=dict)
    layout: list[Any] | None = None

    def __post_init__(self) -> None:
        if self.task not in TASKS:
            raise UsageError(f"unknown task {self.task!r}: use one of {', '.join(TASKS)}")
        if not self.image.startswith(b"\x89PNG\r\n\x1a\n"):
            raise UsageError(f"the image of a {self.task} row from {self.source!r} is no PNG: save it as PNG first")

    def to_plain(self) -> dict[str, Any]:
        """Columns for a table writer; nested values are JSON text, so that every row has the same column types."""
        return {
            "image": self.image,
            "task": self.task,
            "target": self.target,
            "source": self.source,
            "provenance": json.dumps(self.provenance, ensure_ascii=False, sort_keys=True),
            "layout": None if self.layout is None else json.dumps(self.layout, ensure_ascii=False),
        }

    @classmethod
    def from_plain(cls, columns: dict[str, Any]) -> DataRow:
        """The row that `to_plain` made.

        Raises:
            UsageError: a column is missing or malformed.
        """
        try:
            return cls(
                image=bytes(columns["image"]),
                task=columns["task"],
                target=columns["target"],
                source=columns["source"],
                provenance=json.loads(columns["provenance"]),
                layout=None if columns["layout"] is None else json.loads(columns["layout"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(f"not a data row ({error!r}): columns must be those of DataRow.to_plain") from error

    def pixels(self) -> Image.Image:
        """The decoded image."""
        return Image.open(io.BytesIO(self.image))


def from_line(sample: LineSample, **provenance: str | int | float) -> DataRow:
    """A text row; its layout lists the left and right edge of each character in pixels."""
    buffer = io.BytesIO()
    Image.fromarray(sample.image).save(buffer, "PNG")
    edges = np.round(sample.char_x.astype(np.float64), 2).tolist()
    return DataRow(buffer.getvalue(), "text", sample.text, "lines", {"font": sample.font, **provenance}, edges)
