"""Every error a user can meet, under one base class. Each message names the thing at fault and the cure."""

from __future__ import annotations

from pathlib import Path
from typing import Any


class MinerUDiffusionError(Exception):
    """Base of all errors that this package raises on purpose."""


class UsageError(MinerUDiffusionError):
    """The call itself is wrong (bad option, bad page range). The CLI exits with code 2."""


class SourceError(MinerUDiffusionError):
    """An input document cannot be read.

    Args:
        path: the document at fault.
        cause: what is wrong, in a few words.
        cure: what the user can do about it.
        page: 1-based page number, if one page is at fault.
    """

    def __init__(self, path: str | Path, cause: str, cure: str = "", *, page: int | None = None) -> None:
        self.path = Path(path)
        self.cause = cause
        self.cure = cure
        self.page = page
        where = f"{path}, page {page}" if page is not None else str(path)
        super().__init__(f"{where}: {self.reason}")

    @property
    def reason(self) -> str:
        """Cause and cure, for where file and page are named already."""
        return f"{self.cause} ({self.cure})" if self.cure else self.cause

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors cross from the processes that render pages.
        return _source_error, (type(self), self.path, self.cause, self.cure, self.page)


def _source_error(kind: type[SourceError], path: Path, cause: str, cure: str, page: int | None) -> SourceError:
    return kind(path, cause, cure, page=page)


class PasswordRequired(SourceError):
    """The document is encrypted and no password, or a wrong one, was given."""


class OutputError(MinerUDiffusionError):
    """A result cannot be written. `fatal` says that no other result can be either, as on a full disk.

    Args:
        path: the file or folder that cannot be written.
        cause: what is wrong, in a few words.
        cure: what the user can do about it.
    """

    def __init__(self, path: str | Path, cause: str, cure: str = "", *, fatal: bool = False) -> None:
        self.path = Path(path)
        self.fatal = fatal
        super().__init__(f"{path}: {cause}" + (f" ({cure})" if cure else ""))


class CheckpointError(MinerUDiffusionError):
    """A model checkpoint cannot be loaded or disagrees with itself."""


class EngineError(MinerUDiffusionError):
    """Decoding failed."""


class RequestTooLarge(EngineError):
    """One request needs more cache than the engine has; other requests are unaffected."""


class MissingExtra(MinerUDiffusionError):
    """A feature needs an optional dependency that is not installed."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs an optional dependency: pip install 'mineru-diffusion[{extra}]'")
