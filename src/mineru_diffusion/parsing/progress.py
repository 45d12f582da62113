"""Who wants to know how a run goes on implements `Progress`; whoever does not passes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from mineru_diffusion.document.types import Page


class Progress(Protocol):
    """Told about a run as it happens, from the thread that runs it."""

    def document_opened(self, path: Path, pages: int) -> None:
        """A document is open; `pages` of it will be parsed."""
        ...

    def page_finished(self, path: Path, page: Page) -> None:
        """A page is read (or failed: `page.error`). Pages of a document may finish out of order."""
        ...

    def crops(self, submitted: int, finished: int) -> None:
        """Crops given to the engine and crops read, since the run began."""
        ...


class Silent:
    """Nobody wants to know."""

    def document_opened(self, path: Path, pages: int) -> None:
        pass

    def page_finished(self, path: Path, page: Page) -> None:
        pass

    def crops(self, submitted: int, finished: int) -> None:
        pass


@dataclass
class Counters:
    """What a run did.

    Attributes:
        pages: pages read; failed_pages: pages that could not be.
        crops: requests answered; failed_crops: those that ended in an error.
        tokens: decoded tokens.
        passes: forward passes, summed over requests: `tokens / passes` is how many tokens a pass decided.
        fallbacks: regions that were read or found by a second choice.
    """

    pages: int = 0
    failed_pages: int = 0
    crops: int = 0
    failed_crops: int = 0
    tokens: int = 0
    passes: int = 0
    fallbacks: int = 0

    @property
    def tokens_per_pass(self) -> float:
        return self.tokens / self.passes if self.passes else 0.0

    def add(self, other: Counters) -> None:
        """Add another run's numbers to these."""
        for name in vars(other):
            setattr(self, name, getattr(self, name) + getattr(other, name))
