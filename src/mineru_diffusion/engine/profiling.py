"""A picture of where the time goes, for chrome://tracing or https://ui.perfetto.dev."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mineru_diffusion.errors import OutputError


@contextmanager
def chrome_trace(path: str | Path) -> Iterator[None]:
    """Record what torch does inside the block and write it to `path` as a Chrome trace (JSON; compressed if the name
    ends with .gz). The engine's phases show up as `vision`, `forward`, `head` and `decide`. Recording costs time and
    memory: a page or two is enough.

    Raises:
        OutputError: the file cannot be written.
    """
    import torch
    from torch.profiler import ProfilerActivity, profile

    path = Path(path)
    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities, experimental_config=_all_threads()) as recorded:
        yield
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        recorded.export_chrome_trace(str(path))
    except (OSError, RuntimeError) as error:
        raise OutputError(path, f"the profile cannot be written: {error}", "choose another file") from error


def _all_threads() -> Any:
    """Has torch record the thread that encodes images as well, where it can."""
    try:
        from torch._C._profiler import _ExperimentalConfig

        return _ExperimentalConfig(profile_all_threads=True)
    except (ImportError, TypeError):
        return None
