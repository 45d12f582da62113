from __future__ import annotations

import json
import os
import sys
import threading
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from mineru_diffusion.document.names import MAX_STEM_BYTES, collision_key, safe_stem
from mineru_diffusion.document.types import Document, Page, Region
from mineru_diffusion.document.writer import OutputWriter
from mineru_diffusion.errors import OutputError, UsageError


def document(source: str | Path, text: str = "Hello", image_path: str = "") -> Document:
    regions = (Region("text", (0, 0, 1, 0.1), content=text), Region("image", (0, 0.2, 1, 1), image_path=image_path))
    return Document(str(source), (Page(0, 10, 20, regions),))


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def visible(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


def test_all_files_of_a_document(tmp_path: Path) -> None:
    writer = OutputWriter(tmp_path / "deep" / "out")
    folder = writer.folder_for("report.pdf")
    path = folder.save_image(Image.new("RGB", (4, 4)), 0, 1, "image")
    assert path == "images/p0001_001_image.png"
    made = document("report.pdf", image_path=path)
    pages = [(Image.new("RGB", (30, 40)), made.pages[0])]
    assert writer.write(made, ["html", "layout"], pages=lambda dpi: iter(pages)) == folder
    assert folder.directory == tmp_path / "deep" / "out" / "report"
    assert files(folder.directory) == [
        ".source", "images/p0001_001_image.png", "report.html", "report.json", "report.md", "report_content_list.json",
        "report_layout.pdf",
    ]  # fmt: skip
    assert folder.file(".md").read_text(encoding="utf-8") == f"Hello\n\n![]({path})\n"
    assert json.loads(folder.file("_content_list.json").read_text(encoding="utf-8"))[0]["text"] == "Hello"
    assert writer.existing("report.pdf") == made
    assert "data:image/png" in folder.file(".html").read_text(encoding="utf-8")


def test_only_what_was_asked_for(tmp_path: Path) -> None:
    folder = OutputWriter(tmp_path).write(document("a.pdf"), ["layout"])
    assert files(folder.directory) == [".source", "a.json", "a.md", "a_content_list.json"]


def test_two_inputs_of_one_name(tmp_path: Path) -> None:
    names = ["a/report.pdf", "b/report.pdf", "b/REPORT.pdf", "report.png", "c/re\u0301port.pdf", "c/r\u00e9port.pdf"]
    first = OutputWriter(tmp_path)
    folders = [first.write(document(name, name)) for name in names]
    assert len({collision_key(folder.directory.name) for folder in folders}) == len(names)
    assert folders[0].directory.name == "report"
    for name, folder in zip(names, folders, strict=True):
        assert name in folder.file(".md").read_text(encoding="utf-8")
    assert first.find("d/report.pdf") is None
    # A later run, in another order, finds every document where it was.
    second = OutputWriter(tmp_path)
    assert [second.folder_for(name) for name in reversed(names)] == folders[::-1]


def test_a_folder_that_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "report.md").write_text("mine", encoding="utf-8")
    (tmp_path / "notes").write_text("a file", encoding="utf-8")
    writer = OutputWriter(tmp_path)
    assert writer.write(document("report.pdf")).directory.name.startswith("report-")
    assert writer.write(document("notes.pdf")).directory.name.startswith("notes-")
    assert (tmp_path / "report" / "report.md").read_text(encoding="utf-8") == "mine"


@pytest.fixture
def _threads_in_turn() -> Iterator[None]:
    """Threads take turns as often as they can."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.usefixtures("_threads_in_turn")
@pytest.mark.parametrize("attempt", range(10))
def test_threads_get_different_folders(attempt: int, tmp_path: Path) -> None:
    writers = [OutputWriter(tmp_path) for _ in range(8)]
    threads = [
        threading.Thread(target=lambda i=i, w=w: w.write(document(f"{i}/same.pdf", str(i))))
        for i, w in enumerate(writers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(visible(tmp_path)) == 8
    assert len({(tmp_path / name / ".source").read_text(encoding="utf-8") for name in visible(tmp_path)}) == 8


def test_a_marker_that_was_never_written_is_left_to_whoever_made_it(tmp_path: Path) -> None:
    """Another run may be about to write it."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / ".source").touch()
    with OutputWriter(tmp_path) as writer:
        assert writer.write(document("a.pdf", "mine")).stem.startswith("a-")
    assert files(tmp_path / "a") == [".source"]


def test_a_file_of_the_name_is_kept(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a file", encoding="utf-8")
    with OutputWriter(tmp_path) as writer:
        assert writer.write(document("a.pdf", "mine")).stem.startswith("a-")
    assert (tmp_path / "a").read_text(encoding="utf-8") == "a file"


def test_folders_are_taken_where_there_are_no_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    with OutputWriter(tmp_path) as one, OutputWriter(tmp_path) as other:
        assert one.write(document("1/a.pdf", "one")).stem == "a"
        assert other.write(document("2/a.pdf", "two")).stem.startswith("a-")
        assert OutputWriter(tmp_path).write(document("1/a.pdf", "again")).stem == "a"


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = OutputWriter(tmp_path)
    folder = writer.write(document("a.pdf", "old"))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OutputError, match="No space left") as caught:
        writer.write(document("a.pdf", "new"))
    assert caught.value.fatal
    assert folder.file(".md").read_text(encoding="utf-8") == "old\n"
    writer.close()
    assert not (tmp_path / ".staging").exists()


def test_rerun_drops_crops_that_are_no_longer_named(tmp_path: Path) -> None:
    writer = OutputWriter(tmp_path)
    folder = writer.folder_for("a.pdf")
    old = folder.save_image(Image.new("RGB", (4, 4)), 0, 1, "image")
    new = folder.save_image(Image.new("RGB", (4, 4)), 0, 2, "Big Table!")
    (folder.directory / "images" / "mine.png").touch()
    writer.write(document("a.pdf", image_path=new))
    assert not (folder.directory / old).exists()
    assert [path.name for path in sorted((folder.directory / "images").iterdir())] == [
        "mine.png",
        "p0001_002_big_table.png",
    ]


def test_existing_is_none_for_nothing_and_for_junk(tmp_path: Path) -> None:
    writer = OutputWriter(tmp_path)
    assert writer.existing("a.pdf") is None
    writer.folder_for("a.pdf").file(".json").write_text("{", encoding="utf-8")
    assert writer.existing("a.pdf") is None


def test_output_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "out").touch()
    with pytest.raises(UsageError, match="output folder"):
        OutputWriter(tmp_path / "out")


def test_long_names_are_cut_by_bytes(tmp_path: Path) -> None:
    writer = OutputWriter(tmp_path)
    long = "\u8868" * 90
    one, two = writer.write(document(long + "a.pdf")), writer.write(document(long + "b.pdf"))
    assert one.directory != two.directory
    for folder in (one, two):
        assert all(len(name.encode()) < 200 for name in os.listdir(folder.directory))


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("report", "report"), ("a/b\\c:d", "a_b_c_d"), ("con", "_con"), ("COM1.x", "_COM1.x"),
        ("conference", "conference"),
        ("trail. .", "trail"), ("...", "document"), ("", "document"), (".hidden", "_hidden"), ("e\u0301", "\u00e9"),
        ("x\x00y\udcff", "x_y_"), ("..", "document"),
    ],
)  # fmt: skip
def test_safe_stem(name: str, stem: str) -> None:
    assert safe_stem(name) == stem


@given(st.text(max_size=150))
def test_any_name_becomes_a_legal_one(name: str) -> None:
    stem = safe_stem(name)
    assert 0 < len(stem.encode()) <= MAX_STEM_BYTES
    assert not set(stem) & set('<>:"/\\|?*\0')
    assert stem[-1] not in ". "
    assert stem[0] != "."
    assert unicodedata.is_normalized("NFC", stem) or len(name.encode()) > MAX_STEM_BYTES
    assert safe_stem(name) == stem


def test_cut_keeps_different_names_different() -> None:
    stems = {safe_stem("x" * 200 + str(i)) for i in range(50)}
    assert len(stems) == 50
