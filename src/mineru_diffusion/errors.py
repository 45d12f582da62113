"""Every error a user can meet, under one base class. Each message names the thing at fault and the cure."""

from __future__ import annotations

from pathlib import Path


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
        super().__init__(f"{where}: {cause}" + (f" ({cure})" if cure else ""))


class PasswordRequired(SourceError):
    """The document is encrypted and no password, or a wrong one, was given."""


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
