"""All losses of a batch as one module: the decoder's objective (`training.streams`), and the helper losses beside it.

Shapes: N samples, P prompt length, A answer length, S patches, M visual tokens, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from mineru_diffusion.model import MinerUDiffusionForConditionalGeneration
from mineru_diffusion.training.config import HelpersConfig
from mineru_diffusion.training.ctc import CtcHead
from mineru_diffusion.training.helpers import EyeHeads, PlaceHead, alignment_loss, rank_targets
from mineru_diffusion.training.streams import Document, Objective, Prediction, batch_loss, packed_loss


@dataclass
class Losses:
    """The sum to minimise, and named parts (detached) for the log."""

    total: Tensor
    parts: dict[str, Tensor] = field(default_factory=dict)


@dataclass
class Inputs:
    """A batch of rendered lines on the device.

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
class PackedInputs:
    """A packed sequence of samples of any size on the device; nothing is known of where their characters stand.

    Attributes:
        pixels: patch rows [S, ...] and `grid` of all images, in the order of `documents`.
        documents: prompts and answers.
        lines: UTF-8 of what each image shows if it is one line of text, else None.
    """

    pixels: Tensor
    grid: list[tuple[int, int, int]]
    documents: list[Document]
    lines: Sequence[bytes | None]


class TrainingModule(nn.Module):
    """The network and its helper heads as one module whose forward is the loss, so that it can be wrapped (DDP, FSDP).

    Args:
        network: to be trained.
        objective: what the decoder minimises.
        helpers: weights of the helper losses.
        slots: slots a visual token; 0: no heads for rendered lines.
    """

    def __init__(
        self,
        network: MinerUDiffusionForConditionalGeneration,
        objective: Objective,
        helpers: HelpersConfig,
        slots: int,
    ) -> None:
        super().__init__()
        text, vision = network.config.text_config, network.config.vision_config
        self.network = network
        if slots:
            self.heads = EyeHeads(text.hidden_size, text.vocab_size, slots)
            self.place = PlaceHead(text.hidden_size, slots)
        if helpers.ctc:
            self.ctc = CtcHead(vision.embed_dim, vision.spatial_merge_size)
        self.slots = slots
        self.objective = objective
        self.weights = helpers

    def forward(
        self,
        batch: Inputs | PackedInputs,
        generator: torch.Generator | None = None,
        *,
        vision_only: bool = False,
        freeze_vision: bool = False,
    ) -> Losses:
        """All losses of one batch."""
        losses = Losses(batch.pixels.new_zeros((), requires_grad=True))
        with torch.set_grad_enabled(torch.is_grad_enabled() and not freeze_vision):
            features = self.network.vision_model(batch.pixels, batch.grid)
            visual = self.network.vision_abstractor(features)
        if isinstance(batch, PackedInputs):
            if self.weights.ctc and not freeze_vision:
                loss = self.ctc(features, batch.grid, batch.lines)
                if loss is not None:
                    self._add(losses, "ctc", self.weights.ctc, loss)
            if not vision_only:
                self._add_prediction(
                    losses, packed_loss(self.network, batch.documents, visual, self.objective, generator)
                )
            return losses
        visual_NMD = visual.view(batch.answers.shape[0], -1, visual.shape[-1])
        ranks, spelled = rank_targets(batch.answers, batch.lengths, batch.counts, batch.alignment, self.slots)
        if not freeze_vision:
            # Tokens come row by row; the upper row speaks for its columns.
            self._add_eye_losses(losses, visual_NMD[:, : batch.counts.shape[1]], batch, spelled)
        if not vision_only:
            self._add_line_losses(losses, visual, batch, ranks, generator)
        return losses

    @staticmethod
    def _add(losses: Losses, name: str, weight: float, loss: Tensor) -> None:
        losses.total = losses.total + weight * loss
        losses.parts[name] = loss.detach()

    @staticmethod
    def _add_prediction(losses: Losses, prediction: Prediction) -> None:
        losses.total = losses.total + prediction.loss
        losses.parts |= prediction.parts

    def _add_eye_losses(self, losses: Losses, upper_NMD: Tensor, batch: Inputs, spelled: Tensor) -> None:
        weights = self.weights
        if weights.slots:
            loss, losses.parts["slot_accuracy"] = self.heads.slot_loss(upper_NMD, batch.slots)
            self._add(losses, "slots", weights.slots, loss)
        if weights.spelling:
            loss, losses.parts["spelling_accuracy"] = self.heads.spelling_loss(upper_NMD, spelled)
            self._add(losses, "spelling", weights.spelling, loss)
        if weights.count:
            self._add(losses, "count", weights.count, self.heads.count_loss(upper_NMD, batch.counts))

    def _add_line_losses(
        self, losses: Losses, visual: Tensor, batch: Inputs, ranks: Tensor, generator: torch.Generator | None
    ) -> None:
        objective, weights = self.objective, self.weights
        prompt_NPD = self.network.embed(batch.prompt.expand(batch.answers.shape[0], -1), visual)
        prediction = batch_loss(
            self.network,
            prompt_NPD,
            batch.answers,
            objective.weights(batch.answers, batch.lengths),
            objective,
            generator,
            weights.alignment_layers if weights.alignment else (),
            record_states=weights.place > 0,
        )
        self._add_prediction(losses, prediction)
        prompt_length = prompt_NPD.shape[1]
        layout = objective.layout(prompt_length, batch.answers.shape[1])
        if prediction.heads:
            first_image = int((batch.prompt == self.network.config.image_token_id).nonzero()[0])
            target = layout.per_position(torch.where(batch.alignment >= 0, batch.alignment + first_image, -1))
            for queries, keys in prediction.heads:
                loss, hits = alignment_loss(queries[:, layout.first :], keys[:, :prompt_length], target)
                self._add(losses, "alignment", weights.alignment / len(prediction.heads), loss)
                losses.parts["alignment_hits"] = hits
        if prediction.states:
            # The input of the last layer: early enough to be used, late enough to be known.
            loss, losses.parts["place_hits"] = self.place(
                prediction.states[-2][:, layout.first :], layout.per_position(ranks)
            )
            self._add(losses, "place", weights.place, loss)
