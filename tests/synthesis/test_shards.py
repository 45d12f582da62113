"""Shards: there and back without loss, whole or not at all, the same by any number of processes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from mineru_diffusion.errors import MinerUDiffusionError, SourceError, UsageError
from mineru_diffusion.synthesis import mixture
from mineru_diffusion.synthesis.fonts import FALLBACK
from mineru_diffusion.synthesis.mixture import STREAMS, Mixture, make_stream
from mineru_diffusion.synthesis.preview import preview_sheet
from mineru_diffusion.synthesis.sample import LayoutBox, Sample
from mineru_diffusion.synthesis.shard_maker import MANIFEST, make_shards
from mineru_diffusion.synthesis.shards import count_rows, read_rows, read_shards, write_shards
from mineru_diffusion.synthesis.statistics import as_table, collect

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

FACTS = {"seed": 3, "tasks": {"text": 1.0}}


class Shades:
    """Sample i: an image, a target and boxes that depend on i and a seed only."""

    def __init__(self, seed: int = 3, broken_at: int = -1) -> None:
        self.seed, self.broken_at = seed, broken_at

    def sample(self, index: int) -> Sample:
        if index == self.broken_at:
            raise ValueError("no such shade")
        rng = np.random.default_rng((self.seed, index))
        shape = (int(rng.integers(1, 9)), int(rng.integers(1, 9)), 3)[: 2 + index % 2]
        boxes = tuple(LayoutBox("text", tuple(rng.random(4).tolist()), f"é{i}", 90 * i) for i in range(index % 3))
        pixels = rng.integers(0, 256, shape).astype(np.uint8)
        return Sample(pixels, "layout" if boxes else "text", f"number {index}", boxes, {"index": index, "font": "A"})


def take(count: int, **options: int) -> list[Sample]:
    return [Shades(**options).sample(i) for i in range(count)]


def assert_equal(left: list[Sample], right: list[Sample]) -> None:
    for a, b in zip(left, right, strict=True):
        assert (a.task, a.target, a.layout, a.source) == (b.task, b.target, b.layout, b.source)
        assert a.image.dtype == b.image.dtype == np.uint8
        np.testing.assert_array_equal(a.image, b.image)


def test_there_and_back(tmp_path: Path) -> None:
    samples = take(150)
    paths = write_shards(iter(samples), tmp_path / "new", shard_size=70)
    assert [count_rows(path) for path in paths] == [70, 70, 10]
    assert_equal(list(read_shards(paths)), samples)
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [path.name for path in paths]


@given(text=st.text(st.characters(codec="utf-8")), number=st.floats(0, 1), key=st.text(st.characters(codec="utf-8")))
def test_any_text_survives(tmp_path_factory: pytest.TempPathFactory, text: str, number: float, key: str) -> None:
    box = LayoutBox(text, (number, 0.0, 1.0, 1.0), text, 270)
    sample = Sample(np.zeros((2, 3), np.uint8), "table", text, (box,), {key: [number, text]})
    folder = tmp_path_factory.mktemp("any")
    assert_equal(list(read_shards(write_shards([sample], folder))), [sample])


def test_parts_of_a_file(tmp_path: Path) -> None:
    samples = take(150)
    (path,) = write_shards(samples, tmp_path)
    for first, last in ((0, 0), (0, 1), (60, 70), (63, 64), (100, 900), (150, 160)):
        assert_equal(read_rows(path, first, last), samples[first:last])


def test_reading_holds_few_rows(tmp_path: Path) -> None:
    """The second file is not even looked for until it is its turn."""
    paths = write_shards(take(4), tmp_path)
    samples = read_shards([*paths, tmp_path / "missing.parquet"])
    assert_equal([next(samples) for _ in range(4)], take(4))
    with pytest.raises(SourceError, match=r"missing\.parquet"):
        next(samples)


def test_the_columns_are_those_of_an_image_data_set(tmp_path: Path) -> None:
    (path,) = write_shards(take(3), tmp_path)
    schema = parquet.read_schema(path)
    assert schema.field("image").type == pa.struct({"bytes": pa.binary(), "path": pa.string()})
    features = json.loads(schema.metadata[b"huggingface"])["info"]["features"]
    assert features["image"] == {"_type": "Image"}
    assert set(features) == set(schema.names) == {"image", "task", "target", "layout", "source"}
    table = parquet.read_table(path).to_pylist()
    assert table[0]["image"]["bytes"].startswith(b"\x89PNG\r\n\x1a\n")


def test_what_is_no_shard_is_refused(tmp_path: Path) -> None:
    text = tmp_path / "text.parquet"
    text.write_text("hello")
    with pytest.raises(SourceError, match=r"text\.parquet.*Parquet"):
        count_rows(text)
    other = tmp_path / "other.parquet"
    parquet.write_table(pa.table({"task": ["text"]}), other)
    with pytest.raises(SourceError, match="lacks the column"):
        list(read_shards([other]))
    damaged = tmp_path / "damaged.parquet"
    (good,) = write_shards(take(1), tmp_path / "good")
    table = parquet.read_table(good)
    column = pa.array([{"bytes": b"no picture", "path": None}], table.schema.field("image").type)
    parquet.write_table(table.set_column(0, "image", column), damaged)
    with pytest.raises(SourceError, match="row 0 is damaged"):
        list(read_shards([damaged]))
    with pytest.raises(UsageError, match="shard size"):
        write_shards(take(1), tmp_path, shard_size=0)


def test_a_shard_is_whole_or_not_there(tmp_path: Path) -> None:
    def breaking() -> Iterator[Sample]:
        yield from take(5)
        raise RuntimeError("out of words")

    with pytest.raises(RuntimeError, match="out of words"):
        write_shards(breaking(), tmp_path, shard_size=3)
    assert [path.name for path in tmp_path.iterdir()] == ["shard-00000.parquet"]
    assert_equal(list(read_shards(sorted(tmp_path.iterdir()))), take(3))


def test_making_goes_on_where_it_ended(tmp_path: Path) -> None:
    def interrupt(done: int) -> None:
        if done == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_shards(Shades(), tmp_path, 10, facts=FACTS, shard_size=3, progress=interrupt)
    names = ["shard-00000.parquet", "shard-00001.parquet"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [*names, MANIFEST]
    (tmp_path / "shard-00009.parquet.1.part").write_bytes(b"left by a killed run")
    kept = (tmp_path / names[0]).stat().st_mtime_ns
    seen: list[int] = []
    report = make_shards(Shades(), tmp_path, 10, facts=FACTS, shard_size=3, progress=seen.append)
    assert (report.made, report.kept, seen) == (4, 6, [6, 7, 8, 9, 10])
    assert (tmp_path / names[0]).stat().st_mtime_ns == kept
    assert not list(tmp_path.glob("*.part"))
    assert_equal(list(read_shards(report.paths)), take(10))


def test_more_samples_later(tmp_path: Path) -> None:
    make_shards(Shades(), tmp_path, 5, facts=FACTS, shard_size=3)
    report = make_shards(Shades(), tmp_path, 8, facts=FACTS, shard_size=3)
    assert (report.made, report.kept) == (5, 3)  # the short last file is made anew
    assert_equal(list(read_shards(report.paths)), take(8))


def test_a_damaged_shard_is_made_again(tmp_path: Path) -> None:
    report = make_shards(Shades(), tmp_path, 6, facts=FACTS, shard_size=3)
    report.paths[1].write_bytes(b"PAR1 and nothing more")
    assert make_shards(Shades(), tmp_path, 6, facts=FACTS, shard_size=3).made == 3
    assert_equal(list(read_shards(report.paths)), take(6))


def test_a_folder_of_other_data_is_refused(tmp_path: Path) -> None:
    make_shards(Shades(), tmp_path, 3, facts=FACTS)
    with pytest.raises(UsageError, match="another seed"):
        make_shards(Shades(), tmp_path, 3, facts={**FACTS, "seed": 4})
    (tmp_path / MANIFEST).write_text("{")
    with pytest.raises(UsageError, match="damaged"):
        make_shards(Shades(), tmp_path, 3, facts=FACTS)
    (tmp_path / MANIFEST).unlink()
    with pytest.raises(UsageError, match="unknown origin"):
        make_shards(Shades(), tmp_path, 3, facts=FACTS)
    with pytest.raises(UsageError, match="bad count"):
        make_shards(Shades(), tmp_path, 0, facts=FACTS)


def test_processes_make_the_same_shards(tmp_path: Path) -> None:
    seen: list[int] = []
    report = make_shards(Shades(), tmp_path, 11, facts=FACTS, shard_size=4, workers=2, progress=seen.append)
    assert (report.made, seen[-1], seen == sorted(seen)) == (11, 11, True)
    assert_equal(list(read_shards(report.paths)), take(11))


def test_a_failing_process_leaves_whole_shards(tmp_path: Path) -> None:
    with pytest.raises(MinerUDiffusionError, match="no such shade"):
        make_shards(Shades(broken_at=5), tmp_path, 8, facts=FACTS, shard_size=4, workers=2)
    assert not list(tmp_path.glob("*.part"))
    assert all(count_rows(path) == 4 for path in tmp_path.glob("*.parquet"))


def test_a_mixture_keeps_its_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[str, int]] = []

    def fake(name: str, seed: int, split: str, *, degrade: float) -> Shades:
        made.append((name, seed))
        return Shades(seed)

    monkeypatch.setattr(mixture, "make_stream", fake)
    mixed = Mixture({"text": 3, "table": 1}, seed=5)
    alone = Mixture({"table": 2}, seed=5)
    assert made[1] == made[2], "a stream has the same seed whatever it is mixed with"
    assert len({seed for _, seed in made}) == 2
    streams = {name: Shades(seed) for name, seed in made}
    found = [mixed.sample(i) for i in range(400)]
    tables = 0
    for i, sample in enumerate(found):
        same = [name for name, stream in streams.items() if np.array_equal(stream.sample(i).image, sample.image)]
        assert same
        tables += same == ["table"]
    assert 60 < tables < 140
    assert_equal([alone.sample(3)], [streams["table"].sample(3)])


def test_bad_mixtures() -> None:
    with pytest.raises(UsageError, match="positive weight"):
        Mixture({}, seed=0)
    with pytest.raises(UsageError, match="positive weight"):
        Mixture({"formula": 0}, seed=0)
    with pytest.raises(UsageError, match="seed"):
        Mixture({"formula": 1}, seed=-1)
    with pytest.raises(UsageError, match="poem.*" + ".*".join(STREAMS)):
        make_stream("poem", 0)


def test_statistics_count_what_is_there() -> None:
    samples = [
        Sample(np.zeros((10, 40), np.uint8), "text", "aab", source={"font": "A", "generator": "lines"}),
        Sample(np.zeros((30, 20, 3), np.uint8), "text", "b", source={"font": "B", "generator": "lines"}),
        Sample(np.zeros((50, 50), np.uint8), "layout", "box", (LayoutBox("text", (0, 0, 1, 1)),), {"font": "A"}),
    ]
    plain = collect(samples)
    assert json.loads(json.dumps(plain)) == plain
    assert plain["samples"] == 3
    assert plain["characters"] == {"a": 2, "b": 2}
    text, layout = plain["tasks"]["text"], plain["tasks"]["layout"]
    assert text["samples"] == 2
    assert (text["target_characters"]["min"], text["target_characters"]["max"]) == (1, 3)
    assert (text["image_width"]["max"], text["image_height"]["max"]) == (40, 30)
    assert text["fonts"] == {"A": 1, "B": 1}
    assert layout["kinds"] == {"text": 1}
    assert [column.header for column in as_table(plain).columns][:2] == ["task", "samples"]
    assert as_table(plain).row_count == 2


def test_the_preview_shows_every_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mineru_diffusion.synthesis.preview.truth_font", lambda: FALLBACK)
    red = np.zeros((40, 60, 3), np.uint8)
    red[..., 0] = 255
    page = Sample(red, "layout", "words " * 200, (LayoutBox("text", (0.2, 0.2, 0.8, 0.8)),), {"generator": "pages"})
    line = Sample(np.full((32, 2000), 7, np.uint8), "text", "a line")
    sheet = preview_sheet([page, line, line], columns=2)
    assert isinstance(sheet, Image.Image)
    colours = np.asarray(sheet).reshape(-1, 3)
    assert (colours == (255, 0, 0)).all(axis=1).sum() > 200
    assert (colours == 7).all(axis=1).sum() > 2 * 600 * 9
    with pytest.raises(UsageError, match="at least one"):
        preview_sheet([])
