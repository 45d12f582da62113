"""Training-only supervision from what the renderer knows: which character stands where. The heads are dropped when the
checkpoint is exported; they exist because an eye that already knows its letters and their number is learned in
minutes, where the answer's cross-entropy alone takes hours to find the picture at all.

Shapes: N lines, M columns of visual tokens (their upper ones, if a line is several tokens high), Q slots a visual
token, R characters a visual token may show, D decoder width, V vocabulary, A answer length, P prompt length.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

COUNT_CLASSES = 96
"""Characters left of a visual token that the count head can tell apart."""

BLANK_WEIGHT = 0.15
"""Weight of empty slots: about three of four are empty, and telling so is easy."""


class EyeHeads(nn.Module):
    """Framewise reading of visual tokens: the character in each slot (framewise labels instead of CTC, as positions are
    known exactly), and how many characters stand left of the token.

    Args:
        width: D.
        vocabulary: V; class V means an empty slot.
        slots: Q.
    """

    def __init__(self, width: int, vocabulary: int, slots: int) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        self.slots = slots
        self.read = nn.Linear(width, slots * (vocabulary + 1))
        # No letter is narrower than a slot.
        self.spell = nn.Linear(width, slots * (vocabulary + 1))
        self.count = nn.Linear(width, COUNT_CLASSES)

    def slot_loss(self, visual_NMD: Tensor, target_NMQ: Tensor) -> tuple[Tensor, Tensor]:
        """Weighted cross-entropy of the slots, and the share of characters read rightly."""
        return self._classify(self.read(visual_NMD), target_NMQ)

    def spelling_loss(self, visual_NMD: Tensor, target_NMR: Tensor) -> tuple[Tensor, Tensor]:
        """The same for the token's characters in their order, wherever in the token they stand: [N, M, R], -1 after the
        last. This is what the decoder has to pick from."""
        return self._classify(self.spell(visual_NMD), target_NMR)

    def _classify(self, scores: Tensor, target_NMQ: Tensor) -> tuple[Tensor, Tensor]:
        logits = scores.view(*target_NMQ.shape, self.vocabulary + 1)
        filled = target_NMQ >= 0
        target = torch.where(filled, target_NMQ, self.vocabulary)
        losses = F.cross_entropy(logits.flatten(0, -2), target.flatten(), reduction="none")
        weights = torch.where(filled, 1.0, BLANK_WEIGHT).flatten()
        loss = (losses * weights).sum() / weights.sum()
        right = (logits.detach().argmax(-1) == target) & filled
        return loss, right.sum() / filled.sum().clamp_min(1)

    def count_loss(self, visual_NMD: Tensor, target_NM: Tensor) -> Tensor:
        """Cross-entropy against a narrow bell around the true number: a near miss is not punished as a far one."""
        classes = torch.arange(COUNT_CLASSES, device=target_NM.device)
        distance = (classes - target_NM.clamp_max(COUNT_CLASSES - 1)[..., None]).float()
        return F.cross_entropy(
            self.count(visual_NMD).flatten(0, 1), torch.softmax(-0.5 * distance.square(), dim=-1).flatten(0, 1)
        )


class PlaceHead(nn.Module):
    """From a hidden state of an answer position: which of its visual token's characters is it, counted from the left?
    Attention finds the token; picking inside it needs this number.

    Args:
        width: D.
        ranks: R.
    """

    def __init__(self, width: int, ranks: int) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(width)
        self.rank = nn.Linear(width, ranks)

    def forward(self, hidden_NLD: Tensor, target_NL: Tensor) -> tuple[Tensor, Tensor]:
        """Cross-entropy (targets of -1 are left out), and the share that is right."""
        scores = self.rank(self.norm(hidden_NLD))
        loss = F.cross_entropy(scores.flatten(0, 1), target_NL.flatten(), ignore_index=-1)
        known = target_NL >= 0
        hits = (scores.detach().argmax(-1) == target_NL) & known
        return loss, hits.sum() / known.sum().clamp_min(1)


def rank_targets(
    answers: Tensor, lengths: Tensor, counts: Tensor, alignment: Tensor, ranks: int
) -> tuple[Tensor, Tensor]:
    """Rank of each character inside its visual token [N, A] (-1 for the end token and fill), and each token's
    characters in order [N, M, ranks] (-1 after the last)."""
    positions = torch.arange(answers.shape[1], device=answers.device)
    is_text = positions < lengths[:, None] - 1
    token = alignment.clamp_min(0)
    rank = positions - counts.gather(1, token)
    is_text = is_text & (rank >= 0) & (rank < ranks)
    spelled = torch.full((*counts.shape, ranks), -1, dtype=answers.dtype, device=answers.device)
    row = torch.arange(answers.shape[0], device=answers.device)[:, None].expand_as(answers)
    spelled[row[is_text], token[is_text], rank[is_text]] = answers[is_text]
    return torch.where(is_text, rank, -1), spelled


def alignment_loss(queries_NLD: Tensor, keys_NPD: Tensor, target_NL: Tensor) -> tuple[Tensor, Tensor]:
    """Ask one attention head to look at the visual token that shows the character to be written.

    Args:
        queries_NLD: queries of the answer's positions.
        keys_NPD: keys of the prompt.
        target_NL: prompt position of each answer position's visual token; -1: none.

    Returns:
        Cross-entropy of the head's distribution over the prompt, and the share of positions where its best key is
        the right one.
    """
    scores = torch.matmul(queries_NLD, keys_NPD.transpose(1, 2)) / queries_NLD.shape[-1] ** 0.5
    loss = F.cross_entropy(scores.flatten(0, 1), target_NL.flatten(), ignore_index=-1)
    known = target_NL >= 0
    hits = (scores.detach().argmax(-1) == target_NL) & known
    return loss, hits.sum() / known.sum().clamp_min(1)
