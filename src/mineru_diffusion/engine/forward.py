"""The decoder's layers as inference runs them: the model's own modules and weights, the same mathematics as its
`forward`, in fewer and partly in-place operations, on a flat list of positions. In the last layer only positions that
are asked for go beyond their keys and values. The tests hold it against the model's own `forward`.

Shapes: T positions of a pass, A asked ones, M of these picked, W decoder width, H query heads, K key/value heads, D
width of a head.
"""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor

from mineru_diffusion.engine.rows import RowAttention
from mineru_diffusion.model.decoder import SDARMLP, RMSNorm, SDARAttention, SDARDecoderLayer, SDARModel
from mineru_diffusion.model.rope import rope_1d


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last dimension, in float32; `weight` broadcasts."""
    wide = x.float()
    length = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
    scale = length.square_().mul_(1.0 / x.shape[-1]).add_(eps).rsqrt_()
    if x.dtype == torch.float32:
        return torch.mul(x, scale).mul_(weight)
    return wide.mul(scale).to(x.dtype) * weight


def _norm(module: RMSNorm, x: Tensor) -> Tensor:
    return rms_norm(x, module.weight, module.eps)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of x [T, heads, D] with half-width tables [T, 1, D / 2]."""
    half = x.shape[-1] // 2
    left, right = x[..., :half], x[..., half:]
    return torch.cat((left.mul(cos).addcmul_(right, sin, value=-1), right.mul(cos).addcmul_(left, sin)), dim=-1)


def _keys_and_values(attention: SDARAttention, normed: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    heads = (normed.shape[0], -1, attention.head_dim)
    k = rms_norm(attention.k_proj(normed).view(heads), attention.k_norm.weight, attention.k_norm.eps)
    return rotate(k, cos, sin), attention.v_proj(normed).view(heads)


def _queries(attention: SDARAttention, normed: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    heads = (normed.shape[0], -1, attention.head_dim)
    q = rms_norm(attention.q_proj(normed).view(heads), attention.q_norm.weight, attention.q_norm.eps)
    return rotate(q, cos, sin)


def before_attention(
    layer: SDARDecoderLayer, x: Tensor, weight: Tensor, cos: Tensor, sin: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalised, rotated queries [T, H, D] and keys [T, K, D], and values [T, K, D]; `weight` [H + K, D] holds both
    head norms."""
    attention = layer.self_attn
    normed = _norm(layer.input_layernorm, x)
    q, k = attention.q_proj(normed), attention.k_proj(normed)
    both = torch.cat((q, k), dim=-1).view(x.shape[0], -1, attention.head_dim)
    both = rotate(rms_norm(both, weight, attention.q_norm.eps), cos, sin)
    values = attention.v_proj(normed).view(x.shape[0], -1, attention.head_dim)
    return *both.split((q.shape[-1] // attention.head_dim, k.shape[-1] // attention.head_dim), dim=1), values


def _mlp(module: SDARMLP, x: Tensor) -> Tensor:
    return module.down_proj(F.silu(module.gate_proj(x), inplace=True).mul_(module.up_proj(x)))


def after_attention(layer: SDARDecoderLayer, x: Tensor, mixed: Tensor) -> Tensor:
    """Output projection, residual and MLP [T, W]."""
    x = layer.self_attn.o_proj(mixed).add_(x)
    return _mlp(layer.mlp, _norm(layer.post_attention_layernorm, x)).add_(x)


class InferenceDecoder:
    """Runs the layers of a pass.

    Args:
        model: the decoder.
    """

    def __init__(self, model: SDARModel) -> None:
        self.model = model
        self._layers = [cast(SDARDecoderLayer, layer) for layer in model.layers]
        config = model.config
        self.repeats = config.num_attention_heads // config.num_key_value_heads
        self._norms: list[Tensor] = []
        for layer in self._layers:
            q, k = layer.self_attn.q_norm.weight, layer.self_attn.k_norm.weight
            rows = (config.num_attention_heads, config.num_key_value_heads)
            self._norms.append(torch.cat([w.detach().expand(n, -1) for w, n in zip((q, k), rows, strict=True)]))
        self._tables: tuple[Tensor, Tensor] | None = None

    def _rope(self, positions_T: Tensor, longest: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Half-width cosines and sines [T, 1, D / 2], from tables that grow with the longest sequence."""
        if self._tables is None or self._tables[0].shape[0] < longest or self._tables[0].dtype != dtype:
            every = torch.arange(max(1024, 2 * longest), device=positions_T.device)
            width = self.model.config.head_dim
            cos, sin = rope_1d(every, width, self.model.config.rope_theta)
            self._tables = cos[:, None, : width // 2].to(dtype), sin[:, None, : width // 2].to(dtype)
        return self._tables[0].index_select(0, positions_T), self._tables[1].index_select(0, positions_T)

    def __call__(
        self, x: Tensor, positions_T: Tensor, longest: int, attention: RowAttention, picked: Tensor | None
    ) -> Tensor | None:
        """Run all layers.

        Args:
            x: input embeddings [T, W]; overwritten.
            positions_T: positions of their sequences.
            longest: more than the largest position.
            attention: slots, visibility and asked positions of the pass.
            picked: which of the A asked positions [M] are wanted; None: all.

        Returns:
            Hidden states [M, W] after the final norm; None if nothing was asked for.
        """
        cos, sin = self._rope(positions_T, longest, x.dtype)
        cache, slots = attention.cache, attention.slots
        final = len(self._layers) - 1
        for index, layer in enumerate(self._layers):
            if index == final and (attention.last is None or attention.asked is not None):
                break
            q, k, v = before_attention(layer, x, self._norms[index], cos, sin)
            cache.write(index, slots, k, v)
            mixed = attention.all.mix(index, q)
            if index == final and picked is not None:
                mixed, x = mixed.index_select(0, picked), x.index_select(0, picked)
            x = after_attention(layer, x, mixed)
        else:
            return _norm(self.model.norm, x)
        layer = self._layers[final]
        normed = _norm(layer.input_layernorm, x)
        cache.write(final, slots, *_keys_and_values(layer.self_attn, normed, cos, sin))
        if attention.last is None or attention.asked is None:
            return None
        asked = attention.asked
        q = _queries(
            layer.self_attn, normed.index_select(0, asked), cos.index_select(0, asked), sin.index_select(0, asked)
        )
        mixed = attention.last.mix(final, q)
        if picked is not None:
            mixed, asked = mixed.index_select(0, picked), asked.index_select(0, picked)
        return _norm(self.model.norm, after_attention(layer, x.index_select(0, asked), mixed))
