from __future__ import annotations

import torch
import torch.nn.functional as F

from mineru_diffusion.training.ctc import BYTES, FRAMES, CtcHead, column_means


def test_columns_are_those_of_the_picture() -> None:
    """Features that say their own column, in the processor's order of merge windows."""
    rows, columns, merge = 4, 6, 2
    where = torch.arange(columns).expand(rows, columns)
    windows = where.reshape(rows // merge, merge, columns // merge, merge).transpose(1, 2).reshape(-1, 1).float()
    assert column_means(windows, (1, rows, columns), merge).flatten().tolist() == [0, 1, 2, 3, 4, 5]


def test_the_loss_is_ctc_a_byte_over_lines_that_fit() -> None:
    torch.manual_seed(0)
    head = CtcHead(8, 2)
    grid = [(1, 2, 4), (1, 2, 6), (1, 2, 4), (1, 4, 4)]
    features = torch.randn(sum(r * c for _, r, c in grid), 8)
    # The third has too few columns for its bytes (two equal neighbours need a blank), the last is no line.
    texts = [b"ab", b"abc", b"aabbccdd", None]
    loss = head(features, grid, texts)
    assert loss is not None
    total = torch.zeros(())
    start = 0
    for (_, r, c), text in zip(grid[:2], texts[:2], strict=True):
        assert text is not None
        part = head.norm(column_means(features[start : start + r * c], (1, r, c), 2))
        scores = head.read(part).view(1, c * FRAMES, BYTES + 1).log_softmax(-1).transpose(0, 1)
        target = torch.tensor([list(text)])
        total = total + F.ctc_loss(
            scores, target, torch.tensor([c * FRAMES]), torch.tensor([len(text)]), blank=BYTES, reduction="sum"
        )
        start += r * c
    torch.testing.assert_close(loss, total / 5)
    assert head(features, grid, [None, b"", None, None]) is None
