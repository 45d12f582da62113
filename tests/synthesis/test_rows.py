"""Data rows keep what they were given."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mineru_diffusion.errors import UsageError
from mineru_diffusion.synthesis.fonts import FALLBACK
from mineru_diffusion.synthesis.lines import LineRenderer
from mineru_diffusion.synthesis.rows import DataRow, from_line


def make_row() -> DataRow:
    sample = LineRenderer([FALLBACK]).render("Total: 12.50", np.random.default_rng(1))
    row = from_line(sample, seed=1, number=0)
    np.testing.assert_array_equal(np.asarray(row.pixels()), sample.image)
    np.testing.assert_allclose(row.layout, sample.char_x, atol=0.006)
    return row


def test_a_line_becomes_a_row() -> None:
    row = make_row()
    assert (row.task, row.target, row.source) == ("text", "Total: 12.50", "lines")
    assert row.provenance == {"font": FALLBACK.name, "seed": 1, "number": 0}


def test_there_and_back() -> None:
    row = make_row()
    plain = row.to_plain()
    assert json.loads(plain["provenance"])["seed"] == 1
    assert DataRow.from_plain(plain) == row


def test_bad_rows_are_refused() -> None:
    plain = make_row().to_plain()
    with pytest.raises(UsageError, match="unknown task"):
        DataRow.from_plain({**plain, "task": "poem"})
    with pytest.raises(UsageError, match="PNG"):
        DataRow.from_plain({**plain, "image": b"JFIF"})
    with pytest.raises(UsageError, match="target"):
        DataRow.from_plain({k: v for k, v in plain.items() if k != "target"})
