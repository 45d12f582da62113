"""The training objective: masked cross-entropy in the two-stream layout (docs/design.md, section 6; BD3-LM, arXiv
2503.09573, section 3.2), and the helper losses beside it.

Shapes: N samples, P prompt length, A answer length (C blocks of B), R noise draws, D width, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mineru_diffusion.diffusion.masks import two_stream_mask
from mineru_diffusion.diffusion.noising import NoiseConfig, draw_masks, token_weights
from mineru_diffusion.model import MaskedAttention, MinerUDiffusionForConditionalGeneration
from mineru_diffusion.training.config import DiffusionConfig, HelpersConfig
from mineru_diffusion.training.helpers import (
    EyeHeads,
    PlaceHead,
    RecordingAttention,
    alignment_loss,
    rank_targets,
)


@dataclass
class Losses:
    """The sum to minimise, and named parts (detached) for the log."""

    total: Tensor
    parts: dict[str, Tensor] = field(default_factory=dict)


@dataclass
class Inputs:
    """One batch on the device.

    Attributes:
        prompt: ids [P], the same for all samples of a batch.
        pixels: patch rows [S, ...] and `grid` [(frames, rows, columns)] of the N images.
        answers: [N, A]; text, end token, fill.
        lengths: text and end token [N].
        slots: [N, M, Q]; counts: [N, M]; alignment: [N, A]; see `training.data.LineBatch`.
    """

    prompt: Tensor
    pixels: Tensor
    grid: list[tuple[int, int, int]]
    answers: Tensor
    lengths: Tensor
    slots: Tensor
    counts: Tensor
    alignment: Tensor


@dataclass
class Records:
    """What the helper losses look at: first-head queries and keys of some layers, and every layer's input [N, L, D]."""

    heads: list[tuple[Tensor, Tensor]]
    states: tuple[Tensor, ...]


def noise_config(config: DiffusionConfig) -> NoiseConfig:
    """The noise of a run's `diffusion` section."""
    return NoiseConfig(
        block_length=config.block_length,
        weighting=config.weighting,
        ordered_share=config.ordered_share,
        full_share=config.full_share,
    )


def target_weights(answers: Tensor, lengths: Tensor, block_length: int, fill_weight: float) -> Tensor:
    """How much each answer position counts [N, A]: text and end token 1, fill in the end token's block `fill_weight`
    (it is never seen by the user, but its neighbours see it), later blocks 0 (they are never decoded)."""
    positions = torch.arange(answers.shape[1], device=answers.device)
    real = positions < lengths[:, None]
    last_block = (lengths[:, None] - 1) // block_length
    return torch.where(real, 1.0, fill_weight) * (positions // block_length <= last_block)


def two_stream_loss(
    network: MinerUDiffusionForConditionalGeneration,
    prompt_NPD: Tensor,
    answers: Tensor,
    weights: Tensor,
    config: DiffusionConfig,
    generator: torch.Generator | None = None,
    record_layers: tuple[int, ...] = (),
    record_states: bool = False,
) -> tuple[Tensor, dict[str, Tensor], Records]:
    """Masked cross-entropy of `config.draws` noise draws that share one clean stream.

    Args:
        prompt_NPD: embedded prompts.
        answers: ids [N, A].
        weights: importance of each answer position [N, A].
        generator: source of the noise (CPU).
        record_layers: layers whose first head's queries and keys are kept.
        record_states: keep the hidden states.

    Returns:
        The loss, parts for the log, and what was recorded.
    """
    device = answers.device
    count, length = answers.shape
    prompt_length, draws, block = prompt_NPD.shape[1], config.draws, config.block_length
    drawn = [draw_masks((count, length), noise_config(config), generator) for _ in range(draws)]
    masked = torch.stack([m for m, _ in drawn], dim=1).to(device)
    levels = torch.stack([t for _, t in drawn], dim=1).to(device)
    noisy = torch.where(masked, network.config.mask_token_id, answers[:, None])

    embed = network.language_model.model.embed_tokens
    clean_length = length - block
    streams = torch.cat((answers[:, :clean_length], noisy.flatten(1)), dim=1)
    embeds = torch.cat((prompt_NPD, embed(streams)), dim=1)
    answer_positions = torch.arange(prompt_length, prompt_length + length, device=device)
    positions = torch.cat(
        (torch.arange(prompt_length, device=device), answer_positions[:clean_length], answer_positions.repeat(draws))
    )
    mask = two_stream_mask(prompt_length, length // block, block, draws, device)
    context = RecordingAttention(mask, record_layers) if record_layers else MaskedAttention(mask)

    factors = token_weights(masked.flatten(0, 1), levels.flatten(0, 1), config.weighting).view_as(levels)
    factors = factors * weights[:, None]
    wanted = factors > 0
    logits_at = F.pad(wanted.flatten(1), (prompt_length + clean_length, 0))
    output = network(
        inputs_embeds=embeds,
        position_ids=positions[None],
        attention=context,
        logits_at=logits_at,
        output_hidden_states=record_states,
    )
    logits = output.logits
    target = answers[:, None].expand_as(noisy)[wanted]
    factor = factors[wanted]
    losses = F.cross_entropy(logits.float(), target, reduction="none")
    if config.weighting == "inverse_t":
        # 1/t makes the expected weight of every position 1, so the bound is a mean over ALL positions.
        loss = (losses * factor).sum() / (weights.sum() * draws).clamp_min(1.0)
    else:
        loss = (losses * factor).sum() / factor.sum().clamp_min(1e-6)
    real = factor >= 1.0
    hits = (logits.detach().argmax(-1) == target) & real
    parts = {"loss": loss.detach(), "accuracy": hits.sum() / real.sum().clamp_min(1)}
    heads = context.recorded if isinstance(context, RecordingAttention) else []
    return loss, parts, Records(heads, output.hidden_states or ())


class TrainingModule(nn.Module):
    """The network and its helper heads as one module whose forward is the loss, so that it can be wrapped (DDP, FSDP).

    Args:
        network: to be trained.
        diffusion: the objective.
        helpers: weights of the helper losses.
        slots: slots a visual token.
    """

    def __init__(
        self,
        network: MinerUDiffusionForConditionalGeneration,
        diffusion: DiffusionConfig,
        helpers: HelpersConfig,
        slots: int,
    ) -> None:
        super().__init__()
        text = network.config.text_config
        self.network = network
        self.heads = EyeHeads(text.hidden_size, text.vocab_size, slots)
        self.place = PlaceHead(text.hidden_size, slots)
        self.slots = slots
        self.diffusion = diffusion
        self.weights = helpers

    def forward(
        self,
        batch: Inputs,
        generator: torch.Generator | None = None,
        *,
        vision_only: bool = False,
        freeze_vision: bool = False,
    ) -> Losses:
        """All losses of one batch."""
        count = batch.answers.shape[0]
        with torch.set_grad_enabled(torch.is_grad_enabled() and not freeze_vision):
            visual = self.network.encode_images(batch.pixels, batch.grid)
        visual_NMD = visual.view(count, -1, visual.shape[-1])
        # Tokens come row by row; the upper row speaks for its columns.
        upper_NMD = visual_NMD[:, : batch.counts.shape[1]]
        ranks, spelled = rank_targets(batch.answers, batch.lengths, batch.counts, batch.alignment, self.slots)
        total = visual_NMD.new_zeros(())
        parts: dict[str, Tensor] = {}
        if not freeze_vision:
            if self.weights.slots:
                loss, accuracy = self.heads.slot_loss(upper_NMD, batch.slots)
                total = total + self.weights.slots * loss
                parts |= {"slots": loss.detach(), "slot_accuracy": accuracy}
            if self.weights.spelling:
                loss, accuracy = self.heads.spelling_loss(upper_NMD, spelled)
                total = total + self.weights.spelling * loss
                parts |= {"spelling": loss.detach(), "spelling_accuracy": accuracy}
            if self.weights.count:
                loss = self.heads.count_loss(upper_NMD, batch.counts)
                total = total + self.weights.count * loss
                parts["count"] = loss.detach()
        if vision_only:
            return Losses(total, parts)

        prompt_NPD = self.network.embed(batch.prompt.expand(count, -1), visual)
        weights = target_weights(batch.answers, batch.lengths, self.diffusion.block_length, self.diffusion.fill_weight)
        record = self.weights.alignment_layers if self.weights.alignment else ()
        loss, more, records = two_stream_loss(
            self.network,
            prompt_NPD,
            batch.answers,
            weights,
            self.diffusion,
            generator,
            record,
            record_states=self.weights.place > 0,
        )
        total = total + loss
        parts |= more
        prompt_length = prompt_NPD.shape[1]
        if records.heads:
            first_image = int((batch.prompt == self.network.config.image_token_id).nonzero()[0])
            target = self._per_stream(torch.where(batch.alignment >= 0, batch.alignment + first_image, -1))
            for queries, keys in records.heads:
                loss, hits = alignment_loss(queries[:, prompt_length:], keys[:, :prompt_length], target)
                total = total + self.weights.alignment / len(records.heads) * loss
                parts |= {"alignment": loss.detach(), "alignment_hits": hits}
        if records.states:
            # The input of the last layer: early enough to be used, late enough to be known.
            loss, hits = self.place(records.states[-2][:, prompt_length:], self._per_stream(ranks))
            total = total + self.weights.place * loss
            parts |= {"place": loss.detach(), "place_hits": hits}
        return Losses(total, parts)

    def _per_stream(self, target_NA: Tensor) -> Tensor:
        """Targets of the answer's positions, for the clean stream (without its last block) and each noisy one."""
        clean = target_NA[:, : target_NA.shape[1] - self.diffusion.block_length]
        return torch.cat((clean, target_NA.repeat(1, self.diffusion.draws)), dim=1)
