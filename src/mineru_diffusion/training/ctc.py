"""An auxiliary CTC head on the vision tower (Graves et al., 2006): the eye learns its letters from one-line images
before the decoder can use it. Training only; it is dropped at export.

The alphabet is bytes, so that the head is small whatever the tokenizer. Shapes: C patch columns, E tower width.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

BYTES = 256
FRAMES = 2
"""Outputs a patch column: a patch of 14 px may show parts of two letters."""


def column_means(features_SE: Tensor, grid: tuple[int, int, int], merge: int) -> Tensor:
    """Mean over the rows of each patch column [C, E]; features come window by window, as the processor cuts them."""
    _, rows, columns = grid
    windows = features_SE.view(rows // merge, columns // merge, merge, merge, -1)
    return windows.mean(dim=(0, 2)).flatten(0, 1)


class CtcHead(nn.Module):
    """Reads the bytes of a line from the columns of its image.

    Args:
        width: E.
        merge: patches that a visual token is wide and high.
    """

    def __init__(self, width: int, merge: int) -> None:
        super().__init__()
        self.merge = merge
        self.norm = nn.LayerNorm(width)
        self.read = nn.Linear(width, FRAMES * (BYTES + 1))

    def forward(
        self, features_SE: Tensor, grid: Sequence[tuple[int, int, int]], texts: Sequence[bytes | None]
    ) -> Tensor | None:
        """Mean CTC loss a byte over the images that show one line.

        Args:
            features_SE: the tower's features of all images.
            grid: (frames, rows, columns) of each.
            texts: UTF-8 of each line; None: not a line.

        Returns:
            None if no image shows a line that its columns can spell.
        """
        losses: list[Tensor] = []
        count = 0
        for features, size, text in zip(features_SE.split([r * c for _, r, c in grid]), grid, texts, strict=True):
            # CTC needs a frame for each byte and a blank between two equal ones.
            if not text or size[2] * FRAMES < len(text) + sum(a == b for a, b in pairwise(text)):
                continue
            columns = self.norm(column_means(features.float(), size, self.merge))
            scores = self.read(columns).float().view(-1, BYTES + 1).log_softmax(-1)
            target = torch.tensor(list(text), device=scores.device)[None]
            sizes = (torch.tensor([scores.shape[0]]), torch.tensor([len(text)]))
            losses.append(F.ctc_loss(scores[:, None], target, *sizes, blank=BYTES, reduction="sum"))
            count += len(text)
        return torch.stack(losses).sum() / count if losses else None
