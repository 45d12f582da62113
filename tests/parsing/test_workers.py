"""Pages prepared in processes of their own: the same pages, and a crash takes one page with it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from numbered_pages import NumberLayout, NumberReader, number_pdf
from PIL import Image

from mineru_diffusion.errors import PasswordRequired, SourceError, UsageError
from mineru_diffusion.parsing import ParseOptions, Pipeline
from mineru_diffusion.parsing.layout_types import PageLayout
from mineru_diffusion.parsing.workers import CRASHED


class Deadly(NumberLayout):
    """Ends its process at pages of one size."""

    def detect(self, images: Sequence[Image.Image]) -> list[PageLayout]:
        if any(image.getpixel((0, 0)) == (1, 2, 3) for image in images):
            os._exit(11)
        return super().detect(images)


def test_the_same_as_in_a_thread(tmp_path: Path) -> None:
    paths = []
    for i in range(3):
        paths.append(tmp_path / f"{i}.pdf")
        paths[-1].write_bytes(number_pdf([10 * i + page for page in range(4)]))
    paths.insert(1, tmp_path / "bad.pdf")
    paths[1].write_bytes(b"%PDF-1.4 nothing")
    outcomes = {
        jobs: list(Pipeline(NumberReader(), NumberLayout(), ParseOptions(dpi=72, jobs=jobs)).run(paths))
        for jobs in (1, 2)
    }
    for one, two in zip(outcomes[1], outcomes[2], strict=True):
        assert (one.path, one.document, str(one.error)) == (two.path, two.document, str(two.error))


def test_a_page_that_kills_its_process(tmp_path: Path) -> None:
    images = [Image.new("RGB", (60, 80), "white") for _ in range(4)]
    images[2] = Image.new("RGB", (60, 80), (1, 2, 3))
    path = tmp_path / "a.tif"
    images[0].save(path, save_all=True, append_images=images[1:])
    (outcome,) = Pipeline(NumberReader(), Deadly(), ParseOptions(jobs=2)).run([path])
    assert outcome.document is not None
    assert [page.error for page in outcome.document.pages] == ["", "", CRASHED, ""]


def test_errors_cross_processes_whole() -> None:
    import pickle

    error = PasswordRequired("a.pdf", "the PDF is encrypted", "give its password", page=3)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is PasswordRequired
    assert (str(again), again.page, again.reason) == (str(error), 3, "the PDF is encrypted (give its password)")
    assert str(pickle.loads(pickle.dumps(SourceError("a", "b")))) == "a: b"


def test_no_jobs_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="job"):
        ParseOptions(jobs=0)
