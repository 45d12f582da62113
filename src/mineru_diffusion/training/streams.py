"""The training objectives on the decoder: masked cross-entropy in the two-stream layout (docs/design.md, section 6;
BD3-LM, arXiv 2503.09573, section 3.2), and next-token cross-entropy for the autoregressive twin.

Shapes: N samples, P prompt length, A answer length (C blocks of B), R noise draws, L positions, D width, V vocabulary,
M positions that predict.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from mineru_diffusion.diffusion.masks import Labels, causal_labels, two_stream_labels
from mineru_diffusion.diffusion.noising import NoiseConfig, draw_streams, token_weights
from mineru_diffusion.model import MinerUDiffusionForConditionalGeneration
from mineru_diffusion.training.attention import RecordingAttention, make_attention
from mineru_diffusion.training.config import DiffusionConfig

HEAD_CHUNK_ELEMENTS = 1 << 27
"""Logits held at a time (512 MB in float32); beyond that they are computed in pieces, again in the backward pass."""


def noise_config(config: DiffusionConfig) -> NoiseConfig:
    """The noise of a run's `diffusion` section.

    Raises:
        ValueError: settings that exclude each other.
    """
    return NoiseConfig(
        block_length=config.block_length,
        weighting=config.weighting,
        ordered_share=config.ordered_share,
        full_share=config.full_share,
        complementary=config.complementary,
    )


@dataclass(frozen=True)
class Objective:
    """What is minimised.

    Attributes:
        diffusion: the noise; of its fields the autoregressive objective uses none.
        autoregressive: next-token prediction under a causal mask.
        flex: attend by FlexAttention.
    """

    diffusion: DiffusionConfig
    autoregressive: bool = False
    flex: bool = False

    @property
    def block_length(self) -> int:
        return 1 if self.autoregressive else self.diffusion.block_length

    def layout(self, prompt: int, answer: int) -> StreamLayout:
        """The layout of a document with a prompt of P and an answer of A tokens."""
        return StreamLayout(prompt, answer, self.block_length, 0 if self.autoregressive else self.diffusion.draws)

    def weights(self, answers: Tensor, lengths: Tensor) -> Tensor:
        """See `target_weights`."""
        return target_weights(answers, lengths, self.block_length, self.diffusion.fill_weight)


@dataclass(frozen=True)
class StreamLayout:
    """Where the tokens of one document stand.

    Two streams: `[prompt | clean blocks but the last | noisy blocks x R]`; a noisy position predicts its own token.
    Autoregressive (R = 0): `[prompt | answer but its last token]`; a position predicts the next token, so that the
    prompt's last position predicts the answer's first.
    """

    prompt: int
    answer: int
    block: int
    draws: int

    @property
    def first(self) -> int:
        """The first position that belongs to an answer token, by reading or by predicting it."""
        return self.prompt if self.draws else self.prompt - 1

    @property
    def clean(self) -> int:
        """Answer tokens of the clean stream."""
        return self.answer - self.block

    @property
    def length(self) -> int:
        """L."""
        return self.prompt + self.clean + self.draws * self.answer

    def positions(self, device: torch.device | None = None) -> Tensor:
        """Positions [L] for RoPE; both streams share them."""
        every = torch.arange(self.prompt + self.answer, device=device)
        return torch.cat((every[: self.prompt + self.clean], every[self.prompt :].repeat(self.draws)))

    def labels(self, device: torch.device | None = None) -> Labels:
        """Who sees whom."""
        if not self.draws:
            return causal_labels(self.length, device)
        return two_stream_labels(self.prompt, self.answer // self.block, self.block, self.draws, device)

    def tokens(self, answers_NA: Tensor, noisy_NRA: Tensor) -> Tensor:
        """Ids behind the prompt [N, L - P]."""
        return torch.cat((answers_NA[:, : self.clean], noisy_NRA.flatten(1)), dim=1)

    def per_position(self, values_NA: Tensor) -> Tensor:
        """Values of answer tokens, for each position from `first` on."""
        if not self.draws:
            return values_NA
        return torch.cat((values_NA[:, : self.clean], values_NA.repeat(1, self.draws)), dim=1)

    def at_end(self, values_NRA: Tensor) -> Tensor:
        """Values of the predicting positions, which are the last ones, padded with zeros in front [N, L]."""
        flat = values_NRA.flatten(1)
        return F.pad(flat, (self.length - flat.shape[1], 0))


def target_weights(answers: Tensor, lengths: Tensor, block_length: int, fill_weight: float) -> Tensor:
    """How much each answer position counts [N, A]: text and end token 1, fill in the end token's block `fill_weight`
    (it is never seen by the user, but its neighbours see it), later blocks 0 (they are never decoded)."""
    positions = torch.arange(answers.shape[1], device=answers.device)
    real = positions < lengths[:, None]
    last_block = (lengths[:, None] - 1) // block_length
    return torch.where(real, 1.0, fill_weight) * (positions // block_length <= last_block)


def draw_inputs(
    answers: Tensor, weights: Tensor, objective: Objective, mask_id: int, generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """Noisy tokens [N, R, A] and how much each prediction counts [N, R, A] (autoregressive: no noisy tokens, R = 1)."""
    if objective.autoregressive:
        return answers.new_empty((answers.shape[0], 0, answers.shape[1])), weights[:, None]
    config = objective.diffusion
    shape = (answers.shape[0], answers.shape[1])
    masked, levels = (t.to(answers.device) for t in draw_streams(shape, noise_config(config), config.draws, generator))
    factors = token_weights(masked, levels, config.weighting) * weights[:, None]
    return torch.where(masked, mask_id, answers[:, None]), factors


@dataclass
class Prediction:
    """What one pass gave: the loss, parts for the log (detached), first-head queries and keys of the recorded layers,
    and every layer's input [N, L, D] if asked for."""

    loss: Tensor
    parts: dict[str, Tensor]
    heads: list[tuple[Tensor, Tensor]]
    states: tuple[Tensor, ...]


def token_losses(head: nn.Module, hidden_MD: Tensor, target_M: Tensor, vocabulary: int) -> tuple[Tensor, Tensor]:
    """Cross-entropy and hits [M]; many logits are computed piece by piece and not kept."""

    def piece(hidden: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        logits = head(hidden).float()
        return F.cross_entropy(logits, target, reduction="none"), logits.detach().argmax(-1) == target

    size = max(1, HEAD_CHUNK_ELEMENTS // vocabulary)
    if hidden_MD.shape[0] <= size:
        return piece(hidden_MD, target_M)
    done = [
        checkpoint(piece, hidden, target, use_reentrant=False)
        for hidden, target in zip(hidden_MD.split(size), target_M.split(size), strict=True)
    ]
    return torch.cat([losses for losses, _ in done]), torch.cat([hits for _, hits in done])


def _predict(
    network: MinerUDiffusionForConditionalGeneration,
    embeds_NLD: Tensor,
    positions_NL: Tensor,
    documents: Sequence[Labels],
    target_NL: Tensor,
    factor_NL: Tensor,
    importance_NL: Tensor,
    objective: Objective,
    record_layers: tuple[int, ...] = (),
    record_states: bool = False,
) -> Prediction:
    """Run the decoder and compare it with its targets where `factor` is above 0.

    Args:
        importance_NL: `target_weights` of the same positions: 1 for text, and what `inverse_t` is normalised by.
    """
    inner = make_attention(documents, flex=objective.flex)
    context = RecordingAttention(inner, record_layers) if record_layers else inner
    wanted = factor_NL > 0
    output = network(
        inputs_embeds=embeds_NLD,
        position_ids=positions_NL,
        attention=context,
        logits_at=wanted,
        project=False,
        output_hidden_states=record_states,
    )
    vocabulary = int(network.config.text_config.vocab_size)
    losses, hits = token_losses(network.language_model.lm_head, output.last_hidden_state, target_NL[wanted], vocabulary)
    factor = factor_NL[wanted]
    # 1/t makes the expected weight of every position 1, so that bound is a mean over ALL positions.
    by_all = not objective.autoregressive and objective.diffusion.weighting == "inverse_t"
    total = importance_NL.sum().clamp_min(1.0) if by_all else factor.sum().clamp_min(1e-6)
    loss = (losses * factor).sum() / total
    real = importance_NL[wanted] >= 1.0
    parts = {"loss": loss.detach(), "accuracy": (hits & real).sum() / real.sum().clamp_min(1)}
    heads = list(context.recorded.values()) if isinstance(context, RecordingAttention) else []
    return Prediction(loss, parts, heads, output.hidden_states or ())


def batch_loss(
    network: MinerUDiffusionForConditionalGeneration,
    prompt_NPD: Tensor,
    answers: Tensor,
    weights: Tensor,
    objective: Objective,
    generator: torch.Generator | None = None,
    record_layers: tuple[int, ...] = (),
    record_states: bool = False,
) -> Prediction:
    """The loss of samples whose prompts, and whose padded answers, are equally long.

    Args:
        prompt_NPD: embedded prompts.
        answers: ids [N, A].
        weights: importance of each answer position [N, A].
        generator: source of the noise (CPU).
        record_layers: layers whose first head's queries and keys are kept.
        record_states: keep the hidden states.
    """
    layout = objective.layout(prompt_NPD.shape[1], answers.shape[1])
    noisy, factors = draw_inputs(answers, weights, objective, int(network.config.mask_token_id), generator)
    embeds = network.language_model.model.embed_tokens(layout.tokens(answers, noisy))
    return _predict(
        network,
        torch.cat((prompt_NPD, embeds.to(prompt_NPD.dtype)), dim=1),
        layout.positions(answers.device)[None],
        [layout.labels(answers.device)],
        layout.at_end(answers[:, None].expand(factors.shape)),
        layout.at_end(factors),
        layout.at_end(weights[:, None].expand(factors.shape)),
        objective,
        record_layers,
        record_states,
    )


@dataclass(frozen=True)
class Document:
    """One sample of a packed sequence: prompt ids [P] with a place for each visual token, answer ids [A] (text, end
    token, fill to whole blocks), and the length of text and end token."""

    prompt: Tensor
    answer: Tensor
    length: int


def packed_loss(
    network: MinerUDiffusionForConditionalGeneration,
    documents: Sequence[Document],
    visual_MD: Tensor,
    objective: Objective,
    generator: torch.Generator | None = None,
) -> Prediction:
    """The loss of samples of any lengths, one after the other in one sequence, without padding between them.

    Args:
        visual_MD: visual tokens of all documents, in order.
    """
    mask_id = int(network.config.mask_token_id)
    columns: list[list[Tensor]] = [[], [], [], [], []]
    labels: list[Labels] = []
    for document in documents:
        answers = document.answer[None]
        layout = objective.layout(document.prompt.shape[0], answers.shape[1])
        weights = objective.weights(answers, torch.tensor([document.length], device=answers.device))
        noisy, factors = draw_inputs(answers, weights, objective, mask_id, generator)
        labels.append(layout.labels(answers.device))
        parts = (
            torch.cat((document.prompt[None], layout.tokens(answers, noisy)), dim=1),
            layout.positions(answers.device)[None],
            layout.at_end(answers[:, None].expand(factors.shape)),
            layout.at_end(factors),
            layout.at_end(weights[:, None].expand(factors.shape)),
        )
        for column, part in zip(columns, parts, strict=True):
            column.append(part)
    ids, positions, target, factor, importance = (torch.cat(column, dim=1) for column in columns)
    embeds = network.embed(ids, visual_MD)
    return _predict(network, embeds, positions, labels, target, factor, importance, objective)
