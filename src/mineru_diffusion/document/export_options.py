"""What the exporters may do differently, in one record that the library, the command line and the server share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mineru_diffusion.errors import UsageError

MathStyle = Literal["dollar", "latex"]
MATH_STYLES: tuple[MathStyle, ...] = ("dollar", "latex")


@dataclass(frozen=True)
class ExportOptions:
    r"""How a document is written.

    Attributes:
        math: delimiters of formulas in Markdown: `dollar` is `$x$` and `$$x$$`, `latex` is `\(x\)` and `\[x\]`.
        furniture: keep headers, footers, page numbers and side notes in Markdown and HTML (the JSON always has them).
        join_tables: offer a table that goes on over the next page as one; off, each page's part stands for itself.
        review: list the regions whose confidence is below this, and those with a problem, and mark them in the
            overlay; None: no list.

    Raises:
        UsageError: a value is out of its range.
    """

    math: MathStyle = "dollar"
    furniture: bool = False
    join_tables: bool = True
    review: float | None = None

    def __post_init__(self) -> None:
        if self.math not in MATH_STYLES:
            raise UsageError(f"unknown formula style {self.math!r}; choose one of {', '.join(MATH_STYLES)}")
        if self.review is not None and not 0 <= self.review <= 1:
            raise UsageError(f"the confidence to review below must lie in 0..1, not {self.review}")
