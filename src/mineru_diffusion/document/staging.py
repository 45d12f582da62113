"""Files that are whole or not there: written beside the results, then moved into place in one step.

Every run has a folder of its own below `<root>/.staging`. A run that was killed leaves its folder behind; the next one
finds that nobody holds its lock any more, and removes it.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from mineru_diffusion.errors import OutputError

STAGING = ".staging"

# What no other file will fare better with.
_FATAL = frozenset({errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EIO})


class Staging:
    """A place for unfinished files on the file system of `root`; may be shared between threads.

    Raises:
        OutputError: it cannot be made.
    """

    def __init__(self, root: Path) -> None:
        self._home = root / STAGING
        self._numbers = itertools.count()
        try:
            self._home.mkdir(parents=True, exist_ok=True)
            self._sweep()
            name = uuid.uuid4().hex
            self._lock = FileLock(self._home / f"{name}.lock")
            self._lock.acquire(timeout=0)
            self._folder = self._home / name
            self._folder.mkdir()
        except (OSError, Timeout) as error:
            raise output_error(self._home, error) from error

    def put(self, target: Path, write: Callable[[Path], object]) -> bool:
        """Let `write` make a file, then put it in the place of `target`. The file's suffix is the target's.

        Returns:
            False if `write` made none; an older `target` is gone then as well.

        Raises:
            OutputError: it cannot be written.
        """
        with self._unfinished(target) as temporary:
            write(temporary)
            if not temporary.exists():
                target.unlink(missing_ok=True)
                return False
            _to_disk(temporary)
            os.replace(temporary, target)
            return True

    def create(self, target: Path, text: str) -> bool:
        """Make a file that nobody ever sees empty; False if there is one already.

        Raises:
            OutputError: it cannot be written.
        """
        with self._unfinished(target) as temporary:
            temporary.write_text(text, encoding="utf-8")
            try:
                os.link(temporary, target)
            except (
                OSError
            ):  # it is there, or hard links are not; then it is not whole at once, but still made by one only
                try:
                    with target.open("x", encoding="utf-8") as file:
                        file.write(text)
                except FileExistsError:
                    return False
            return True

    @contextlib.contextmanager
    def _unfinished(self, target: Path) -> Iterator[Path]:
        """A place for what becomes `target`; what is left there afterwards is removed."""
        temporary = self._folder / f"{next(self._numbers)}{target.suffix}"
        try:
            yield temporary
        except OSError as error:
            raise output_error(target, error) from error
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)

    def close(self) -> None:
        """Remove what is left of this run's folder; may be called twice."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._lock.release()
        with contextlib.suppress(OSError):
            Path(self._lock.lock_file).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self._home.rmdir()  # only when no other run is using it

    def _sweep(self) -> None:
        for path in self._home.glob("*.lock"):
            lock = FileLock(path)
            try:
                lock.acquire(timeout=0)
            except (Timeout, OSError):
                continue
            shutil.rmtree(path.with_suffix(""), ignore_errors=True)
            lock.release()
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


def output_error(path: Path, error: OSError) -> OutputError:
    """An error of the operating system as one of ours."""
    fatal = error.errno in _FATAL
    cure = "make room or choose another output folder" if fatal else "check the folder's permissions"
    return OutputError(path, f"cannot be written: {error.strerror or error}", cure, fatal=fatal)


def _to_disk(path: Path) -> None:
    """A name must not outlive its contents when the power fails."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
