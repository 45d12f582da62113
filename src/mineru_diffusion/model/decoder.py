"""The SDAR decoder (arXiv 2510.06303; Qwen3-like): embeddings in, hidden states out. What a position may see is decided
outside, by the `AttentionContext`.

Shapes: N batch or rows, L positions, D width, H query heads, K key/value heads, V vocabulary.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from mineru_diffusion.model.attention import AttentionContext
from mineru_diffusion.model.configuration import SDARTextConfig
from mineru_diffusion.model.rope import apply_rope, rope_1d


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) in float32, then the weight in the input's dtype (arXiv 1910.07467)."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        if x.dtype == torch.float32:
            return F.rms_norm(x, (x.shape[-1],), self.weight, self.eps)
        return self.weight * F.rms_norm(x.float(), (x.shape[-1],), None, self.eps).to(x.dtype)


class SDARAttention(nn.Module):
    """Grouped-query attention with RMSNorm on every query and key head, before RoPE."""

    def __init__(self, config: SDARTextConfig, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.head_dim = config.head_dim
        queries, keys = config.num_attention_heads * config.head_dim, config.num_key_value_heads * config.head_dim
        self.q_proj = nn.Linear(config.hidden_size, queries, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, keys, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, keys, bias=False)
        self.o_proj = nn.Linear(queries, config.hidden_size, bias=False)
        self.q_norm = RMSNorm(config.head_dim, config.rms_norm_eps)
        self.k_norm = RMSNorm(config.head_dim, config.rms_norm_eps)

    def queries_and_keys(self, x_NLD: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """Normalised, rotated queries [N, H, L, D] and keys [N, K, L, D]."""
        heads = (*x_NLD.shape[:2], -1, self.head_dim)
        q = self.q_norm(self.q_proj(x_NLD).view(heads)).transpose(1, 2)
        k = self.k_norm(self.k_proj(x_NLD).view(heads)).transpose(1, 2)
        return apply_rope(q, cos, sin), apply_rope(k, cos, sin)

    def forward(self, x_NLD: Tensor, cos: Tensor, sin: Tensor, context: AttentionContext) -> Tensor:
        q, k = self.queries_and_keys(x_NLD, cos, sin)
        v = self.v_proj(x_NLD).view(*x_NLD.shape[:2], -1, self.head_dim).transpose(1, 2)
        mixed = context.attend(self.layer, q, k, v)
        return self.o_proj(mixed.transpose(1, 2).flatten(2))


class SDARMLP(nn.Module):
    """SwiGLU (arXiv 2002.05202)."""

    def __init__(self, config: SDARTextConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class SDARDecoderLayer(nn.Module):
    """Pre-norm attention and MLP."""

    def __init__(self, config: SDARTextConfig, layer: int) -> None:
        super().__init__()
        self.self_attn = SDARAttention(config, layer)
        self.mlp = SDARMLP(config)
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, x_NLD: Tensor, cos: Tensor, sin: Tensor, context: AttentionContext) -> Tensor:
        x_NLD = x_NLD + self.self_attn(self.input_layernorm(x_NLD), cos, sin, context)
        return x_NLD + self.mlp(self.post_attention_layernorm(x_NLD))


class SDARModel(nn.Module):
    """Token embeddings, layers and the final norm."""

    def __init__(self, config: SDARTextConfig) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(SDARDecoderLayer(config, i) for i in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.gradient_checkpointing = False

    def forward(
        self,
        embeds_NLD: Tensor,
        position_ids_NL: Tensor,
        context: AttentionContext,
        hidden_states: list[Tensor] | None = None,
    ) -> Tensor:
        """Run all layers.

        Args:
            embeds_NLD: input embeddings.
            position_ids_NL: absolute positions for RoPE.
            context: decides what each position sees.
            hidden_states: if a list is given, each layer's input is appended to it, and the last layer's output.

        Returns:
            Hidden states [N, L, D] after the final norm.
        """
        x = embeds_NLD
        cos, sin = rope_1d(position_ids_NL, self.config.head_dim, self.config.rope_theta)
        cos, sin = cos[:, None].to(x.dtype), sin[:, None].to(x.dtype)
        for layer in self.layers:
            if hidden_states is not None:
                hidden_states.append(x)
            if self.gradient_checkpointing and self.training:
                x = checkpoint(layer, x, cos, sin, context, use_reentrant=False)
            else:
                x = layer(x, cos, sin, context)
        if hidden_states is not None:
            hidden_states.append(x)
        return self.norm(x)


class SDARForCausalLM(nn.Module):
    """The decoder with its vocabulary head, under the published parameter names (`language_model.*`)."""

    def __init__(self, config: SDARTextConfig) -> None:
        super().__init__()
        self.model = SDARModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
