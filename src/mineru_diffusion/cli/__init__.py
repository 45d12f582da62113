"""The command line, thin: options in, library calls, reports and exit codes out. One module a command.

Exit codes: see `app.ExitCode`.
"""

from __future__ import annotations

from typing import Any

# Each registers its command.
from mineru_diffusion.cli import bench, demo, evaluate, mine, models, olmocr, parse, serve, synth, train  # noqa: F401
from mineru_diffusion.cli.app import app

__all__ = ["app", "main"]


def main(argv: list[str] | None = None) -> Any:
    """Entry point of the `mineru-diffusion` command."""
    return app(args=argv)
