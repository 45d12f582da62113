"""Visitors' files: unguessable, limited, removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from mineru_diffusion.demo.errors import Refused, said
from mineru_diffusion.demo.sessions import Sessions
from mineru_diffusion.demo.settings import DemoSettings, example_files
from mineru_diffusion.errors import EngineError, PasswordRequired, SourceError


def put(folder: Path, name: str = "a.pdf") -> Path:
    path = folder / name
    path.write_bytes(b"%PDF")
    return path


def test_an_upload_moves_in_and_goes_with_its_session(tmp_path: Path) -> None:
    sessions = Sessions(tmp_path / "s", DemoSettings())
    upload = put(tmp_path)
    session = sessions.open(upload, "../../etc/my report.pdf")
    assert not upload.exists()
    assert session.path.parent.parent == tmp_path / "s"
    assert session.name == "my report.pdf"
    assert sessions.get(session.token) is session
    sessions.close(session.token)
    assert not session.folder.exists()
    with pytest.raises(Refused, match="put away"):
        sessions.get(session.token)


def test_an_example_stays_where_it_is(tmp_path: Path) -> None:
    sessions = Sessions(tmp_path / "s", DemoSettings())
    example = put(tmp_path)
    sessions.open(example, "a.pdf", keep=True)
    assert example.exists()


def test_too_many_or_idle_sessions_are_closed(tmp_path: Path) -> None:
    sessions = Sessions(tmp_path / "s", DemoSettings(max_sessions=2))
    opened = [sessions.open(put(tmp_path), "a.pdf") for _ in range(4)]
    assert [s.folder.exists() for s in opened] == [False, False, True, True]
    lazy = Sessions(tmp_path / "t", DemoSettings(session_seconds=-1))
    first = lazy.open(put(tmp_path), "a.pdf")
    lazy.sweep()
    assert not first.folder.exists()
    assert len(lazy) == 0


def test_regions_of_others_are_not_found(tmp_path: Path) -> None:
    sessions = Sessions(tmp_path / "s", DemoSettings())
    one, other = (sessions.open(put(tmp_path), "a.pdf") for _ in range(2))
    for key in (other.key(0, 0), one.key(0, 0), None, "", "x-y-z"):
        with pytest.raises(Refused, match="Choose a region"):
            one.plan_of(key)


def test_errors_name_the_file_and_no_folder() -> None:
    folder = Path("/srv/secret/place")
    assert said(SourceError(folder / "a.pdf", "damaged", "export it again")) == "a.pdf: damaged (export it again)"
    assert "password" in said(PasswordRequired(folder / "a.pdf", "encrypted"))
    for error in (
        SourceError(folder / "a.pdf", f"cannot read {folder}/b.bin"),
        EngineError(f"broke in {folder}/c.py"),
        RuntimeError(f"at {folder}"),
    ):
        assert "secret" not in said(error)


def test_there_are_examples() -> None:
    assert {path.suffix for path in example_files()} >= {".pdf", ".png"}
