"""Errors as a visitor may read them: the cause and the cure, and no path of this machine."""

from __future__ import annotations

import logging
import re

from mineru_diffusion.errors import MinerUDiffusionError, PasswordRequired, SourceError

logger = logging.getLogger("mineru_diffusion.demo")

_PATH = re.compile(r"(?:[A-Za-z]:\\|/)(?:[^\s:'\"/\\]+[/\\])+")


def said(error: Exception) -> str:
    """One sentence for the page. Anything unexpected goes to the log, and the page says that it does."""
    if isinstance(error, PasswordRequired):
        return f"{error.path.name} is protected: type its password above and send it again."
    if isinstance(error, SourceError):
        where = f"{error.path.name}, page {error.page}" if error.page is not None else error.path.name
        return _PATH.sub("", f"{where}: {error.reason}")
    if isinstance(error, (MinerUDiffusionError, Refused)):
        return _PATH.sub("", str(error))
    logger.exception("unexpected error", exc_info=error)
    return "Something went wrong in here; the log of the server says what."


class Refused(Exception):
    """The visitor asked for something that cannot be done; the message says why."""
