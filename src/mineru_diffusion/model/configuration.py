"""Configuration of the network, in the published checkpoint's format (docs/design.md, section 4).

In: `config.json` of any MinerU-Diffusion checkpoint, old aliases included. Out: the same fields.
"""

from __future__ import annotations

from typing import Any

from transformers import PretrainedConfig


def _drop_rope_dict(kwargs: dict[str, Any], rope_theta: float) -> float:
    """Newer transformers write `rope_parameters` where older ones wrote `rope_theta`; read both."""
    parameters = kwargs.pop("rope_parameters", None) or kwargs.pop("rope_scaling", None)
    kwargs.pop("rope_scaling", None)
    if isinstance(parameters, dict):
        kind = parameters.get("rope_type", parameters.get("type", "default"))
        if kind not in ("default", None):
            raise ValueError(f"rope type {kind!r} is not supported; this decoder has plain 1-D RoPE")
        return float(parameters.get("rope_theta", rope_theta))
    return rope_theta


class SDARTextConfig(PretrainedConfig):  # type: ignore[misc]
    """The SDAR decoder: Qwen3-like, with per-head q/k norm, no biases and plain 1-D RoPE."""

    model_type = "sdar"
    base_config_key = "text_config"

    def __init__(
        self,
        vocab_size: int = 151936,
        hidden_size: int = 2048,
        intermediate_size: int = 6144,
        num_hidden_layers: int = 28,
        num_attention_heads: int = 16,
        num_key_value_heads: int = 8,
        head_dim: int = 128,
        hidden_act: str = "silu",
        max_position_embeddings: int = 32768,
        initializer_range: float = 0.02,
        rms_norm_eps: float = 1e-6,
        rope_theta: float = 1_000_000.0,
        attention_bias: bool = False,
        attention_dropout: float = 0.0,
        use_cache: bool = True,
        use_sliding_window: bool = False,
        sliding_window: int | None = None,
        max_window_layers: int = 28,
        **kwargs: Any,
    ) -> None:
        if attention_bias or use_sliding_window or hidden_act != "silu":
            raise ValueError("the SDAR decoder has no attention bias, no sliding window and uses SiLU")
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.intermediate_size = intermediate_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.num_key_value_heads = num_key_value_heads
        self.head_dim = head_dim
        self.hidden_act = hidden_act
        self.max_position_embeddings = max_position_embeddings
        self.initializer_range = initializer_range
        self.rms_norm_eps = rms_norm_eps
        self.rope_theta = _drop_rope_dict(kwargs, rope_theta)
        self.attention_bias = attention_bias
        self.attention_dropout = attention_dropout
        self.use_cache = use_cache
        self.use_sliding_window = use_sliding_window
        self.sliding_window = None
        self.max_window_layers = max_window_layers
        kwargs.setdefault("tie_word_embeddings", False)
        super().__init__(**kwargs)


class MinerUDiffusionVisionConfig(PretrainedConfig):  # type: ignore[misc]
    """The Qwen2-VL-type vision tower. `hidden_size` is the width of the decoder that it feeds."""

    model_type = "qwen2_vl"
    base_config_key = "vision_config"

    def __init__(
        self,
        depth: int = 32,
        embed_dim: int = 1280,
        hidden_size: int = 2048,
        hidden_act: str = "quick_gelu",
        mlp_ratio: float = 4,
        num_heads: int = 16,
        in_channels: int = 3,
        patch_size: int = 14,
        spatial_merge_size: int = 2,
        temporal_patch_size: int = 2,
        initializer_range: float = 0.02,
        **kwargs: Any,
    ) -> None:
        kwargs.pop("rope_parameters", None)
        self.depth = depth
        self.embed_dim = embed_dim
        self.hidden_size = hidden_size
        self.hidden_act = hidden_act
        self.mlp_ratio = mlp_ratio
        self.num_heads = num_heads
        self.in_channels = in_channels
        self.patch_size = patch_size
        self.spatial_merge_size = spatial_merge_size
        self.temporal_patch_size = temporal_patch_size
        self.initializer_range = initializer_range
        super().__init__(**kwargs)


class MinerUDiffusionConfig(PretrainedConfig):  # type: ignore[misc]
    """The whole network: vision tower, projector, decoder, and the ids of the special tokens.

    `language_model_config` and `vision_model_config` are accepted as aliases of `text_config` and `vision_config`.
    """

    model_type = "mineru_diffusion"
    sub_configs = {"text_config": SDARTextConfig, "vision_config": MinerUDiffusionVisionConfig}  # noqa: RUF012

    def __init__(
        self,
        text_config: SDARTextConfig | dict[str, Any] | None = None,
        vision_config: MinerUDiffusionVisionConfig | dict[str, Any] | None = None,
        image_token_id: int = 151655,
        video_token_id: int = 151656,
        vision_start_token_id: int = 151652,
        vision_end_token_id: int = 151653,
        mask_token_id: int = 151669,
        vision_projector_type: str = "patch_merger2x",
        vision_select_layer: int = -2,
        image_size: int = 512,
        patch_size: int = 16,
        downsample_ratio: float = 0.5,
        tie_word_embeddings: bool = False,
        **kwargs: Any,
    ) -> None:
        text = text_config if text_config is not None else kwargs.pop("language_model_config", None)
        vision = vision_config if vision_config is not None else kwargs.pop("vision_model_config", None)
        kwargs.pop("language_model_config", None)
        kwargs.pop("vision_model_config", None)
        self.text_config = text if isinstance(text, SDARTextConfig) else SDARTextConfig(**_without_type(text))
        self.vision_config = (
            vision
            if isinstance(vision, MinerUDiffusionVisionConfig)
            else MinerUDiffusionVisionConfig(**_without_type(vision))
        )
        self.image_token_id = image_token_id
        self.video_token_id = video_token_id
        self.vision_start_token_id = vision_start_token_id
        self.vision_end_token_id = vision_end_token_id
        self.mask_token_id = mask_token_id
        self.vision_projector_type = vision_projector_type
        # Kept because the published file has them; nothing reads them.
        self.vision_select_layer = vision_select_layer
        self.image_size = image_size
        self.patch_size = patch_size
        self.downsample_ratio = downsample_ratio
        # The published layout keeps the ids of generation in text_config and in generation_config.json.
        for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
            kwargs.setdefault(name, getattr(self.text_config, name, None))
        super().__init__(tie_word_embeddings=tie_word_embeddings, **kwargs)
        # transformers 4 asks the decoder's configuration, 5 the whole model's.
        self.text_config.tie_word_embeddings = tie_word_embeddings

    def get_text_config(self, *_: Any, **__: Any) -> SDARTextConfig:
        """The decoder's configuration, as transformers' utilities ask for it."""
        return self.text_config


def _without_type(fields: dict[str, Any] | None) -> dict[str, Any]:
    return {key: value for key, value in (fields or {}).items() if key != "model_type"}
