"""The whole network in Hugging Face form. One forward function serves training, plain evaluation and the engine: what a
position may see comes from outside as an `AttentionContext`. No decoding loop in here.

Shapes: N batch, L positions, D decoder width, S patches, M visual tokens, V vocabulary.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers import GenerationConfig, PreTrainedModel
from transformers.modeling_outputs import ModelOutput

from mineru_diffusion.diffusion.masks import block_causal_mask
from mineru_diffusion.model.attention import AttentionContext, MaskedAttention
from mineru_diffusion.model.configuration import MinerUDiffusionConfig
from mineru_diffusion.model.decoder import SDARForCausalLM
from mineru_diffusion.model.generation import BlockDiffusionMixin
from mineru_diffusion.model.projector import VisionAbstractor
from mineru_diffusion.model.vision import VisionTower

_TIED = {"language_model.lm_head.weight": "language_model.model.embed_tokens.weight"}


@dataclass
class MinerUDiffusionOutput(ModelOutput):  # type: ignore[misc]
    """Logits [N, L, V] (no shift: position i predicts token i), the hidden states that they come from [N, L, D], and
    each layer's input if asked for."""

    logits: Tensor | None = None
    last_hidden_state: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None


class MinerUDiffusionForConditionalGeneration(BlockDiffusionMixin, PreTrainedModel):  # type: ignore[misc]
    """Vision tower, projector and SDAR decoder. Reads and writes the published checkpoint format."""

    config_class = MinerUDiffusionConfig
    base_model_prefix = ""
    main_input_name = "input_ids"
    input_modalities = ("image", "text")
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flash_attn = False
    _no_split_modules = ["SDARDecoderLayer", "VisionBlock"]  # noqa: RUF012
    _tied_weights_keys: Any = _TIED if int(transformers.__version__.split(".")[0]) >= 5 else list(_TIED)

    def __init__(self, config: MinerUDiffusionConfig) -> None:
        super().__init__(config)
        self.vision_model = VisionTower(config.vision_config)
        self.vision_abstractor = VisionAbstractor(config)
        self.language_model = SDARForCausalLM(config.text_config)
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        """Normal(0, initializer_range) for matrices; for training from scratch see `init_for_training`."""
        std = self.config.text_config.initializer_range
        init = nn.init if not hasattr(transformers, "initialization") else _initialisers()
        if isinstance(module, (nn.Linear, nn.Conv3d)):
            init.normal_(module.weight, mean=0.0, std=std)
            if module.bias is not None:
                init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            init.normal_(module.weight, mean=0.0, std=std)
        elif isinstance(module, nn.LayerNorm):
            init.ones_(module.weight)
            init.zeros_(module.bias)
        elif type(module).__name__ == "RMSNorm":
            init.ones_(module.weight)

    def init_for_training(self, seed: int) -> None:
        """Initialise all weights for training from scratch.

        Matrices are drawn with variance 1 / fan_in and layers that write to the residual stream are scaled by
        1 / sqrt(2 * layers) (GPT-2), so that widths from 64 to 2048 start at the same scale of activations.
        """
        generator = torch.Generator().manual_seed(seed)
        depths = {
            "vision_model": self.config.vision_config.depth,
            "language_model": self.config.text_config.num_hidden_layers,
        }
        for name, module in self.named_modules():
            if isinstance(module, (nn.Linear, nn.Conv3d)):
                std = 1.0 / math.sqrt(module.weight[0].numel())
                if name.endswith(("attn.proj", "mlp.fc2", "o_proj", "down_proj")):
                    std /= math.sqrt(2 * depths.get(name.split(".")[0], 1))
                nn.init.normal_(module.weight, std=std, generator=generator)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=0.5, generator=generator)

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, *args: Any, **kwargs: Any) -> Any:
        """As in transformers; the generation configuration, which says how the checkpoint decodes, is read here because
        transformers only does it for its own generation mixin."""
        loaded = super().from_pretrained(pretrained_model_name_or_path, *args, **kwargs)
        model = loaded[0] if isinstance(loaded, tuple) else loaded
        with contextlib.suppress(OSError):  # a checkpoint without one decodes as the published model
            model.generation_config = GenerationConfig.from_pretrained(pretrained_model_name_or_path)
        return loaded

    def get_input_embeddings(self) -> nn.Module:
        return self.language_model.model.embed_tokens

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        self.language_model.model.embed_tokens = value

    def get_output_embeddings(self) -> nn.Module:
        return self.language_model.lm_head

    def set_output_embeddings(self, value: nn.Linear) -> None:
        self.language_model.lm_head = value

    def get_decoder(self) -> nn.Module:
        return self.language_model.model

    def encode_images(self, pixel_values: Tensor, image_grid_thw: Any) -> Tensor:
        """Images to visual tokens.

        Args:
            pixel_values: patch rows [S, channels * frames * patch^2] of all images.
            image_grid_thw: [images, 3].

        Returns:
            Visual tokens [M, D] of all images, in order.
        """
        return self.vision_abstractor(self.vision_model(pixel_values, image_grid_thw))

    def embed(self, input_ids: Tensor, visual_MD: Tensor | None = None, image_tokens: int | None = None) -> Tensor:
        """Token embeddings [N, L, D], with the image tokens' rows replaced by visual tokens, in order.

        Args:
            input_ids: [N, L].
            visual_MD: visual tokens [M, D] of all images.
            image_tokens: how many image tokens `input_ids` has; None: counted, for which the host waits for the device.

        Raises:
            ValueError: the number of image tokens differs from the number of visual tokens.
        """
        embeds = self.language_model.model.embed_tokens(input_ids)
        is_image = input_ids == self.config.image_token_id
        expected = int(is_image.sum()) if image_tokens is None else image_tokens
        found = 0 if visual_MD is None else visual_MD.shape[0]
        if expected != found:
            raise ValueError(
                f"the prompt has {expected} image tokens but the images gave {found} visual tokens; "
                "build both with the checkpoint's processor and do not truncate"
            )
        if visual_MD is None:
            return embeds
        return embeds.masked_scatter(is_image[..., None], visual_MD.to(embeds.dtype))

    def forward(
        self,
        input_ids: Tensor | None = None,
        pixel_values: Tensor | None = None,
        image_grid_thw: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        position_ids: Tensor | None = None,
        attention: AttentionContext | None = None,
        block_length: int = 32,
        logits_at: Tensor | None = None,
        project: bool = True,
        output_hidden_states: bool = False,
        **_: Any,
    ) -> MinerUDiffusionOutput:
        """Run the network.

        Args:
            input_ids: [N, L]; or `inputs_embeds` [N, L, D].
            pixel_values: patch rows of the images, see `encode_images`.
            image_grid_thw: [images, 3].
            position_ids: [N, L]; default 0 .. L-1.
            attention: who sees whom; default the block-causal prompt mask with blocks aligned to the end.
            block_length: block length of that default mask.
            logits_at: boolean [N, L]: compute logits only there (result [count, V]).
            project: apply the vocabulary head; False leaves that to the caller, who may do it in pieces.
            output_hidden_states: also return each layer's input and the last layer's output.

        Returns:
            Logits [N, L, V], or [count, V] with `logits_at`.

        Raises:
            ValueError: no input, or image tokens and features that disagree.
        """
        if inputs_embeds is None:
            if input_ids is None:
                raise ValueError("pass input_ids or inputs_embeds")
            visual = None
            if pixel_values is not None:
                if image_grid_thw is None:
                    raise ValueError("pixel_values needs image_grid_thw, as the checkpoint's processor returns it")
                visual = self.encode_images(pixel_values, image_grid_thw)
            inputs_embeds = self.embed(input_ids, visual)
        length = inputs_embeds.shape[1]
        if position_ids is None:
            position_ids = torch.arange(length, device=inputs_embeds.device)[None]
        if attention is None:
            attention = MaskedAttention(block_causal_mask(length, length, block_length, inputs_embeds.device))
        states: list[Tensor] | None = [] if output_hidden_states else None
        hidden = self.language_model.model(inputs_embeds, position_ids, attention, states)
        if logits_at is not None:
            hidden = hidden[logits_at]
        return MinerUDiffusionOutput(
            logits=self.language_model.lm_head(hidden) if project else None,
            last_hidden_state=hidden,
            hidden_states=None if states is None else tuple(states),
        )


def _initialisers() -> Any:
    """transformers 5 skips tensors that were loaded from a file only if its own init functions are used."""
    from transformers import initialization

    return initialization
