"""The checkpoint that comes with the package."""

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
