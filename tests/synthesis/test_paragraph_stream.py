"""Text regions: exactly repeatable, and their truth is what typst set, line breaks and hyphens undone."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from mineru_diffusion.errors import UsageError
from mineru_diffusion.synthesis import paragraphs
from mineru_diffusion.synthesis.paragraphs import ParagraphStream
from mineru_diffusion.synthesis.sample import Sample
from mineru_diffusion.synthesis.words import has_held_out, letter_runs

pytest.importorskip("wordfreq")
pytest.importorskip("typst")

from tests.synthesis.typst_texts import FAMILIES, letters, open_pdf

COUNT = 60


def stream(seed: int = 4, split: str = "train", **options: float) -> ParagraphStream:
    return ParagraphStream(seed, split, families=FAMILIES, **options)


@pytest.fixture(scope="module")
def drawn() -> list[tuple[Sample, str]]:
    """Samples, each with the typst source that it was drawn from."""
    sources: list[str] = []
    draw = paragraphs.draw

    def spy(source: str, ppi: float) -> np.ndarray:
        sources.append(source)
        return draw(source, ppi)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paragraphs, "draw", spy)
        samples = [stream().sample(i) for i in range(COUNT)]
    return list(zip(samples, sources, strict=True))


def equal(left: Sample, right: Sample) -> bool:
    return (left.target, left.source) == (right.target, right.source) and np.array_equal(left.image, right.image)


def test_the_truth_is_what_was_set(drawn: list[tuple[Sample, str]]) -> None:
    hyphenated = 0
    for sample, source in drawn:
        text = open_pdf(source)[0].get_textpage().get_text_range()
        assert letters(text) == letters(sample.target), sample.source
        hyphenated += text.count("\ufffe") + text.count("\u0002") + text.count("-\r\n")
    assert hyphenated > 5, "no region had a word broken over two lines, so that this test says little"


def test_lines_are_counted_and_few(drawn: list[tuple[Sample, str]]) -> None:
    counts = [sample.source["lines"] for sample, _ in drawn]
    assert min(counts) >= 1
    assert max(counts) <= 12
    assert len(set(counts)) > 6
    for sample, _ in drawn:
        assert sample.target.count("\n") < sample.source["lines"]
        assert sample.image.shape[0] >= sample.source["lines"] * sample.source["em"] * 0.9


def test_only_listed_things_have_lines_of_their_own(drawn: list[tuple[Sample, str]]) -> None:
    kinds = {sample.source["kind"] for sample, _ in drawn}
    assert {"paragraph", "heading", "list", "code"} <= kinds
    for sample, _ in drawn:
        if sample.source["kind"] in ("paragraph", "heading", "caption"):
            assert "\n" not in sample.target
            assert sample.target == " ".join(sample.target.split())
    code = [sample.target for sample, _ in drawn if sample.source["kind"] == "code"]
    assert any(line.startswith("  ") for text in code for line in text.splitlines())


def test_there_is_ink_and_paper(drawn: list[tuple[Sample, str]]) -> None:
    for sample, _ in drawn:
        assert sample.image.dtype == np.uint8
        assert sample.image.ndim in (2, 3)
        assert int(sample.image.max()) - int(sample.image.min()) > 40, sample.source


def test_any_sample_alone_and_by_another_process(drawn: list[tuple[Sample, str]]) -> None:
    copy = pickle.loads(pickle.dumps(stream()))
    for i in (0, 17, COUNT - 1):
        assert equal(copy.sample(i), drawn[i][0])
    assert not equal(stream(seed=5).sample(0), drawn[0][0])


def test_fewer_lines_when_asked() -> None:
    assert all(stream(max_lines=2).sample(i).source["lines"] <= 2 for i in range(12))


def test_splits_share_no_long_word() -> None:
    assert not any(has_held_out(stream(degrade=0).sample(i).target) for i in range(15))
    targets = [stream(split="heldout", degrade=0).sample(i).target for i in range(15)]
    assert all(has_held_out(t) for t in targets if len(letter_runs(t)) > 20)


def test_bad_arguments() -> None:
    with pytest.raises(UsageError, match="negative"):
        stream(seed=-1)
    with pytest.raises(UsageError, match="max_lines"):
        stream(max_lines=13)
    with pytest.raises(UsageError, match="split"):
        stream(split="test")
