r"""Random formulas, as they stand in papers and textbooks.

In: a random generator. Out: Formula: LaTeX in the normal form of `document.formula_normal`, and the same for typst and
matplotlib.
"""

from __future__ import annotations

from dataclasses import dataclass
from zlib import crc32

import numpy as np

from mineru_diffusion.errors import UsageError
from mineru_diffusion.synthesis.formula_grammar import Grammar

HELD_OUT_PERCENT = 10
_TRIES = 3000


@dataclass(frozen=True)
class Formula:
    """Attributes:
    latex: normal form, without delimiters.
    typst: the body of a typst equation; `f"$ {formula.typst} $"` sets it as a display.
    mathtext: for matplotlib, without dollars; None where it cannot be written there.
    length: number of LaTeX tokens.
    """

    latex: str
    typst: str
    mathtext: str | None
    length: int

    @classmethod
    def random(
        cls,
        rng: np.random.Generator,
        *,
        split: str = "train",
        max_depth: int = 3,
        min_length: int = 3,
        max_length: int = 70,
    ) -> Formula:
        """Draw a formula.

        Args:
            rng: its state decides everything.
            split: "train" or "heldout"; no formula is in both (a stable hash of the LaTeX decides).
            max_depth: how deep fractions, roots, brackets and large operators may stand in each other.
            min_length, max_length: range of the number of tokens.

        Raises:
            UsageError: unknown split, or an empty range.
        """
        if split not in ("train", "heldout"):
            raise UsageError(f"unknown split {split!r}: use 'train' or 'heldout'")
        if not 1 <= min_length <= max_length or max_depth < 0:
            raise UsageError(f"bad formula range {min_length}..{max_length}, depth {max_depth}: use 1 <= min <= max")
        for _ in range(_TRIES):
            # Large formulas come easily; the limit is drawn first, so that short ones are as likely as long ones.
            most = int(rng.integers(min_length, max_length + 1))
            depth = int(rng.integers(0, max_depth + 1)) if most > 8 else 0
            part = Grammar(rng, most).top(depth)
            least = max(min_length, most // 2)
            if least <= len(part.tokens) <= most and is_held_out(part.latex) == (split == "heldout"):
                return cls(part.latex, part.typst, part.mathtext, len(part.tokens))
        raise UsageError(f"no formula of {min_length} to {max_length} tokens in {_TRIES} tries: widen the range")


def is_held_out(latex: str) -> bool:
    """Whether a formula in normal form belongs to the held-out split."""
    return crc32(latex.encode()) % 100 < HELD_OUT_PERCENT
