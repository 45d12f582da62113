"""Unfinished files: out of sight while they are written, and gone when the run is."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from mineru_diffusion.document.staging import STAGING, Staging
from mineru_diffusion.errors import OutputError


def test_a_file_is_there_only_when_it_is_whole(tmp_path: Path) -> None:
    staging, target = Staging(tmp_path), tmp_path / "a.txt"

    def write(path: Path) -> None:
        path.write_text("half")
        assert not target.exists()
        assert path.suffix == ".txt"
        path.write_text("whole")

    assert staging.put(target, write)
    assert target.read_text() == "whole"
    staging.close()
    staging.close()
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_a_writer_that_breaks_leaves_the_old_file(tmp_path: Path) -> None:
    staging, target = Staging(tmp_path), tmp_path / "a.txt"
    target.write_text("old")

    def breaks(path: Path) -> None:
        path.write_text("ne")
        raise ZeroDivisionError

    def full(path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(ZeroDivisionError):
        staging.put(target, breaks)
    with pytest.raises(OutputError, match="make room") as caught:
        staging.put(target, full)
    assert caught.value.fatal
    assert target.read_text() == "old"
    assert len(list((tmp_path / STAGING).rglob("*"))) == 2  # the lock and the folder


def test_a_writer_that_makes_nothing_takes_the_old_file_away(tmp_path: Path) -> None:
    staging, target = Staging(tmp_path), tmp_path / "a.txt"
    target.write_text("old")
    assert not staging.put(target, lambda path: None)
    assert not target.exists()


def test_what_a_killed_run_left_is_removed_and_a_living_one_is_left_alone(tmp_path: Path) -> None:
    living = Staging(tmp_path)
    code = (
        "import os, sys\nfrom pathlib import Path\nfrom mineru_diffusion.document.staging import Staging\n"
        "s = Staging(Path(sys.argv[1]))\n"
        "s.put(Path(sys.argv[1]) / 'x', lambda p: (p.write_text('half'), os._exit(9)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], timeout=120, check=False)
    assert done.returncode == 9
    folders = [path for path in (tmp_path / STAGING).iterdir() if path.is_dir()]
    assert len(folders) == 2
    later = Staging(tmp_path)
    folders = [path for path in (tmp_path / STAGING).iterdir() if path.is_dir()]
    assert len(folders) == 2  # the living one's and its own
    assert not any(list(folder.iterdir()) for folder in folders)
    assert living.put(tmp_path / "y", lambda path: path.write_text("z"))
    later.close()
    living.close()
    assert not (tmp_path / STAGING).exists()
