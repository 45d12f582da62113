"""The decoder's layers as inference runs them: the model's own modules and weights, the same mathematics as its
`forward`, in fewer and partly in-place operations, on a flat list of positions. In the last layer only positions that
are asked for go beyond their keys and values. The tests hold it against the model's own `forward`.

Shapes: T positions of a pass, A asked ones, M of these picked, W decoder width, H query heads, K key/value heads, D
width of a head.
"""

from __future__ import annotations

from typing import Protocol, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from mineru_diffusion.engine.cache import PagedCache
from mineru_diffusion.engine.projections import LayerProjections
from mineru_diffusion.model.decoder import RMSNorm, SDARDecoderLayer, SDARModel
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


def _head_norm(layer: LayerProjections, x: Tensor, first: int, count: int, cos: Tensor, sin: Tensor) -> Tensor:
    """Normalised, rotated heads [T, count, D] of x [T, count * D], whose norms start at `first`."""
    weight = layer.head_norms[first : first + count]
    return rotate(rms_norm(x.unflatten(-1, (count, layer.width)), weight, layer.eps), cos, sin)


def _queries(layer: LayerProjections, normed: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return _head_norm(layer, layer.queries(normed), 0, layer.heads[0], cos, sin)


def _keys_and_values(layer: LayerProjections, normed: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    heads, keys = layer.heads
    k, v = layer.keys_values(normed).chunk(2, dim=-1)
    return _head_norm(layer, k, heads, keys, cos, sin), v.unflatten(-1, (keys, layer.width))


def before_attention(layer: LayerProjections, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Normalised, rotated queries [T, H, D] and keys [T, K, D], and values [T, K, D]."""
    heads, keys = layer.heads
    every = layer.queries_keys_values(_norm(layer.before_attention, x))
    turned, v = every.split(((heads + keys) * layer.width, keys * layer.width), dim=-1)
    both = _head_norm(layer, turned, 0, heads + keys, cos, sin)
    return *both.split((heads, keys), dim=1), v.unflatten(-1, (keys, layer.width))


def after_attention(layer: LayerProjections, x: Tensor, mixed: Tensor) -> Tensor:
    """Output projection, residual and MLP (SwiGLU) [T, W]."""
    x = layer.out(mixed).add_(x)
    gate, up = layer.gate_up(_norm(layer.before_mlp, x)).chunk(2, dim=-1)
    return layer.down(F.silu(gate, inplace=True).mul_(up)).add_(x)


class Mixes(Protocol):
    """Attends over the cache."""

    def mix(self, layer: int, q_THD: Tensor) -> Tensor:
        """Attended values [T, H * D] of `layer`."""
        ...


class PassAttention(Protocol):
    """What the layers of a pass need (`rows.RowAttention`): `slots` [T] where they write, `asked` [A] the positions
    that the last layer is asked for (None: all), what attends in all layers, and in the last one (None: nothing is
    asked for)."""

    @property
    def cache(self) -> PagedCache: ...
    @property
    def slots(self) -> Tensor: ...
    @property
    def asked(self) -> Tensor | None: ...
    @property
    def all(self) -> Mixes: ...
    @property
    def last(self) -> Mixes | None: ...


class InferenceDecoder:
    """Runs the layers of a pass.

    Args:
        model: the decoder.
    """

    def __init__(self, model: SDARModel) -> None:
        self.model = model
        self._layers = [LayerProjections(cast(SDARDecoderLayer, layer)) for layer in model.layers]
        self.repeats = model.config.num_attention_heads // model.config.num_key_value_heads
        self.head_dim = model.config.head_dim
        self._tables: tuple[Tensor, Tensor] | None = None

    def rope(self, positions_T: Tensor, longest: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Half-width cosines and sines [T, 1, D / 2], from tables that grow with the longest sequence."""
        if self._tables is None or self._tables[0].shape[0] < longest or self._tables[0].dtype != dtype:
            every = torch.arange(max(1024, 2 * longest), device=positions_T.device)
            cos, sin = rope_1d(every, self.head_dim, self.model.config.rope_theta)
            half = self.head_dim // 2
            self._tables = cos[:, None, :half].to(dtype), sin[:, None, :half].to(dtype)
        return self._tables[0].index_select(0, positions_T), self._tables[1].index_select(0, positions_T)

    def __call__(
        self, x: Tensor, positions_T: Tensor, longest: int, attention: PassAttention, picked: Tensor | None
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
        return self.layers(x, *self.rope(positions_T, longest, x.dtype), attention, picked)

    def layers(
        self, x: Tensor, cos: Tensor, sin: Tensor, attention: PassAttention, picked: Tensor | None
    ) -> Tensor | None:
        """The same with the rotations [T, 1, D / 2] of the positions."""
        cache, slots = attention.cache, attention.slots
        final = len(self._layers) - 1
        for index, layer in enumerate(self._layers):
            if index == final and (attention.last is None or attention.asked is not None):
                break
            q, k, v = before_attention(layer, x, cos, sin)
            cache.write(index, slots, k, v)
            mixed = attention.all.mix(index, q)
            if index == final and picked is not None:
                mixed, x = mixed.index_select(0, picked), x.index_select(0, picked)
            x = after_attention(layer, x, mixed)
        else:
            return _norm(self.model.norm, x)
        layer = self._layers[final]
        normed = _norm(layer.before_attention, x)
        cache.write(final, slots, *_keys_and_values(layer, normed, cos, sin))
        if attention.last is None or attention.asked is None:
            return None
        asked = attention.asked
        q = _queries(layer, normed.index_select(0, asked), cos.index_select(0, asked), sin.index_select(0, asked))
        mixed = attention.last.mix(final, q)
        if picked is not None:
            mixed, asked = mixed.index_select(0, picked), asked.index_select(0, picked)
        return _norm(self.model.norm, after_attention(layer, x.index_select(0, asked), mixed))
