"""The checkpoints that come with the package."""

from __future__ import annotations

from pathlib import Path

from mineru_diffusion.errors import CheckpointError


def packaged_checkpoint() -> Path:
    """Folder of the packaged checkpoint.

    Raises:
        CheckpointError: the package was built without it.
    """
    folder = Path(__file__).parent / "tiny"
    if not (folder / "config.json").is_file():
        raise CheckpointError("this build of the package has no checkpoint; pass --model FOLDER")
    return folder


def packaged_twin() -> Path | None:
    """Folder of the packaged checkpoint's autoregressive twin, or None if this build has none."""
    folder = Path(__file__).parent / "tiny_ar"
    return folder if (folder / "config.json").is_file() else None
