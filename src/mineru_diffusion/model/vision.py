"""The vision tower: Qwen2-VL's ViT without its merger (arXiv 2409.12191, section 2.1). Patches in, features out.

Written here once, because transformers' own tower changed its interface between 4.57 and 5.x, and because images of
one size can share one attention call. Parameter names are the published checkpoint's.

Shapes: S patches of all images together, D width, H heads, G images of one size.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from mineru_diffusion.model.configuration import MinerUDiffusionVisionConfig
from mineru_diffusion.model.rope import apply_rope, rope_2d

Span = tuple[int, int, int]
"""First patch, number of images, patches an image: a run of images of one size."""


def patch_positions(grid_thw: Sequence[tuple[int, int, int]], merge: int, device: torch.device) -> Tensor:
    """Row and column [S, 2] of every patch, in the processor's order: merge windows row by row, patches inside each."""
    parts = []
    for frames, height, width in grid_thw:
        rows = torch.arange(height, device=device)[:, None].expand(height, width)
        columns = torch.arange(width, device=device)[None, :].expand(height, width)
        both = torch.stack((rows, columns), dim=-1)
        windows = both.reshape(height // merge, merge, width // merge, merge, 2).transpose(1, 2).reshape(-1, 2)
        parts.append(windows.repeat(frames, 1))
    return torch.cat(parts)


class PatchEmbed(nn.Module):
    """A 3-D convolution whose kernel equals its stride, computed as one matrix product.

    `as_convolution` computes it as the convolution that it is: several times slower, but then the rounding is the
    public implementation's to the last bit, which comparisons of deep features need.
    """

    as_convolution = False

    def __init__(self, config: MinerUDiffusionVisionConfig) -> None:
        super().__init__()
        kernel = (config.temporal_patch_size, config.patch_size, config.patch_size)
        self.proj = nn.Conv3d(config.in_channels, config.embed_dim, kernel_size=kernel, stride=kernel, bias=False)

    def forward(self, pixels_SP: Tensor) -> Tensor:
        weight = self.proj.weight
        if self.as_convolution:
            shape = (-1, self.proj.in_channels, *self.proj.kernel_size)
            return self.proj(pixels_SP.to(weight.dtype).view(shape)).flatten(1)
        return F.linear(pixels_SP.to(weight.dtype), weight.flatten(1))


class VisionAttention(nn.Module):
    """Full attention among the patches of each image."""

    def __init__(self, config: MinerUDiffusionVisionConfig) -> None:
        super().__init__()
        self.num_heads = config.num_heads
        self.qkv = nn.Linear(config.embed_dim, config.embed_dim * 3)
        self.proj = nn.Linear(config.embed_dim, config.embed_dim)

    def forward(self, x_SD: Tensor, cos_SD: Tensor, sin_SD: Tensor, spans: Sequence[Span]) -> Tensor:
        size, width = x_SD.shape
        q, k, v = self.qkv(x_SD).view(size, 3, self.num_heads, width // self.num_heads).unbind(1)
        cos, sin = cos_SD[:, None], sin_SD[:, None]
        q = apply_rope(q.float(), cos, sin).to(v.dtype)
        k = apply_rope(k.float(), cos, sin).to(v.dtype)
        outputs = []
        for start, images, patches in spans:
            shape = (images, patches, self.num_heads, -1)
            part = slice(start, start + images * patches)
            queries, keys, values = (t[part].view(shape).transpose(1, 2) for t in (q, k, v))
            mixed = F.scaled_dot_product_attention(queries, keys, values)
            outputs.append(mixed.transpose(1, 2).reshape(images * patches, width))
        return self.proj(outputs[0] if len(outputs) == 1 else torch.cat(outputs))


class VisionMLP(nn.Module):
    """Two linear layers with the quick GELU x * sigmoid(1.702 x)."""

    def __init__(self, config: MinerUDiffusionVisionConfig) -> None:
        super().__init__()
        hidden = int(config.embed_dim * config.mlp_ratio)
        self.fc1 = nn.Linear(config.embed_dim, hidden)
        self.fc2 = nn.Linear(hidden, config.embed_dim)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.fc1(x)
        if torch.is_grad_enabled():
            return self.fc2(hidden * torch.sigmoid(1.702 * hidden))
        # The same numbers without two more tensors of this size: new memory costs more than the arithmetic.
        return self.fc2(hidden.mul_((1.702 * hidden).sigmoid_()))


class VisionBlock(nn.Module):
    """Pre-norm transformer block."""

    def __init__(self, config: MinerUDiffusionVisionConfig) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(config.embed_dim, eps=1e-6)
        self.norm2 = nn.LayerNorm(config.embed_dim, eps=1e-6)
        self.attn = VisionAttention(config)
        self.mlp = VisionMLP(config)

    def forward(self, x_SD: Tensor, cos_SD: Tensor, sin_SD: Tensor, spans: Sequence[Span]) -> Tensor:
        x_SD = x_SD + self.attn(self.norm1(x_SD), cos_SD, sin_SD, spans)
        return x_SD + self.mlp(self.norm2(x_SD))


class VisionTower(nn.Module):
    """All blocks run and there is no final norm, as in the published model."""

    def __init__(self, config: MinerUDiffusionVisionConfig) -> None:
        super().__init__()
        self.config = config
        self.patch_embed = PatchEmbed(config)
        self.blocks = nn.ModuleList(VisionBlock(config) for _ in range(config.depth))
        self.gradient_checkpointing = False

    def forward(self, pixels_SP: Tensor, grid_thw: Tensor | Sequence[tuple[int, int, int]]) -> Tensor:
        """Encode images.

        Args:
            pixels_SP: patch rows of all images, one after the other; a row is (channel, frame, y, x) flattened.
            grid_thw: frames, patch rows and patch columns of each image [images, 3].

        Returns:
            Features [S, D] in the order of the input.

        Raises:
            ValueError: the grid does not account for the number of patch rows.
        """
        grid = [
            (int(t), int(h), int(w)) for t, h, w in (grid_thw.tolist() if isinstance(grid_thw, Tensor) else grid_thw)
        ]
        # Attention never crosses frames, so a frame is an image of its own.
        sizes = [h * w for t, h, w in grid for _ in range(t)]
        if sum(sizes) != pixels_SP.shape[0]:
            raise ValueError(f"image_grid_thw accounts for {sum(sizes)} patches, pixel_values has {pixels_SP.shape[0]}")
        order = sorted(range(len(sizes)), key=sizes.__getitem__)
        spans: list[Span] = []
        start = 0
        for patches, members in groupby(order, key=sizes.__getitem__):
            count = len(list(members))
            spans.append((start, count, patches))
            start += count * patches

        cos_SD, sin_SD = rope_2d(
            patch_positions(grid, self.config.spatial_merge_size, pixels_SP.device),
            self.config.embed_dim // self.config.num_heads,
        )
        x_SD = self.patch_embed(pixels_SP)
        shuffled = order != list(range(len(order)))
        if shuffled:
            pieces = torch.arange(x_SD.shape[0], device=x_SD.device).split(sizes)
            index = torch.cat([pieces[i] for i in order])
            x_SD, cos_SD, sin_SD = x_SD[index], cos_SD[index], sin_SD[index]
        for block in self.blocks:
            if self.gradient_checkpointing and self.training:
                x_SD = checkpoint(block, x_SD, cos_SD, sin_SD, spans, use_reentrant=False)
            else:
                x_SD = block(x_SD, cos_SD, sin_SD, spans)
        if shuffled:
            x_SD = torch.empty_like(x_SD).index_copy(0, index, x_SD)
        return x_SD
