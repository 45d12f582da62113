"""The command line, thin: options in, library calls, reports and exit codes out. One module a command.

Exit codes: 0 all went well, 1 an input failed, 2 the call was wrong, 130 interrupted.
"""

from __future__ import annotations

from typing import Any

from mineru_diffusion.cli import evaluate, models, parse, train  # noqa: F401  (each registers its command)
from mineru_diffusion.cli.app import app

__all__ = ["app", "main"]


def main(argv: list[str] | None = None) -> Any:
    """Entry point of the `mineru-diffusion` command."""
    return app(args=argv)
