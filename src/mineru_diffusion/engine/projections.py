"""The matrices of a decoder layer as inference multiplies them: those that have the same input are one product.

Shapes: T positions, W decoder width, H query heads, K key/value heads, D width of a head, I width of the MLP.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeGuard

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mineru_diffusion.model.decoder import SDARAttention, SDARDecoderLayer

Projection = Callable[[Tensor], Tensor]


def merge_weights(layers: Sequence[nn.Linear]) -> Tensor:
    """One matrix of all these layers' outputs. Their own weights become views of it, so no memory is added, and what
    changes them later changes it; who comes a second time gets the same matrix."""
    weights = [layer.weight for layer in layers]
    width = weights[0].shape[1]
    storage, offset = weights[0].untyped_storage(), weights[0].storage_offset()
    rows = 0
    for weight in weights:
        ours = weight.untyped_storage().data_ptr() == storage.data_ptr() and weight.is_contiguous()
        if not ours or weight.storage_offset() != offset + rows * width:
            break
        rows += weight.shape[0]
    else:
        return weights[0].detach().as_strided((rows, width), (width, 1), offset)
    merged = torch.cat([weight.detach() for weight in weights])
    for weight, part in zip(weights, merged.split([weight.shape[0] for weight in weights]), strict=True):
        weight.data = part
    return merged


def is_plain(module: nn.Module) -> TypeGuard[nn.Linear]:
    """Whether a module does nothing but multiply by its weight."""
    return type(module) is nn.Linear and module.bias is None


def side_by_side(modules: Sequence[nn.Module]) -> Projection:
    """All these modules' outputs for one input, one behind the other in the last dimension. Plain matrices are one
    product; others (quantized, widened, adapted) are asked one by one."""
    plain = [module for module in modules if is_plain(module)]
    if len(plain) == len(modules):
        return partial(F.linear, weight=merge_weights(plain) if len(plain) > 1 else plain[0].weight.detach())

    def one_by_one(x: Tensor) -> Tensor:
        outputs: list[Tensor] = [module(x) for module in modules]
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=-1)

    return one_by_one


class LayerProjections:
    """The products of one layer.

    Attributes:
        queries_keys_values: [T, W] to [T, (H + 2K) D].
        queries: [T, W] to [T, H D].
        keys_values: [T, W] to [T, 2 K D].
        out: [T, H D] to [T, W].
        gate_up: [T, W] to [T, 2 I].
        down: [T, I] to [T, W].
        head_norms: [H + K, D], the weights of the norms of query and key heads.
    """

    def __init__(self, layer: SDARDecoderLayer) -> None:
        attention: SDARAttention = layer.self_attn
        q, k, v = attention.q_proj, attention.k_proj, attention.v_proj
        # In this order: the parts that are used alone are rows of the whole.
        self.queries_keys_values = side_by_side((q, k, v))
        self.queries, self.keys_values = side_by_side((q,)), side_by_side((k, v))
        self.out = side_by_side((attention.o_proj,))
        self.gate_up = side_by_side((layer.mlp.gate_proj, layer.mlp.up_proj))
        self.down = side_by_side((layer.mlp.down_proj,))
        self.heads = q.out_features // attention.head_dim, k.out_features // attention.head_dim
        self.width = attention.head_dim
        norms = (attention.q_norm.weight, attention.k_norm.weight)
        self.head_norms = torch.cat([w.detach().expand(n, -1) for w, n in zip(norms, self.heads, strict=True)])
        self.before_attention, self.before_mlp = layer.input_layernorm, layer.post_attention_layernorm
        self.eps = attention.q_norm.eps
