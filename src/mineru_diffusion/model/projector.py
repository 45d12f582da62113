"""From vision features to decoder embeddings: LayerNorm, concatenate each merge window, two-layer MLP."""

from __future__ import annotations

import re

from torch import Tensor, nn

from mineru_diffusion.errors import CheckpointError
from mineru_diffusion.model.configuration import MinerUDiffusionConfig


class PatchMerger(nn.Module):
    """`patch_merger{m}x`: m x m neighbouring patches become one visual token.

    Raises:
        CheckpointError: the configuration names a projector that does not exist or disagrees with the merge size.
    """

    def __init__(self, config: MinerUDiffusionConfig) -> None:
        super().__init__()
        vision = config.vision_config
        found = re.fullmatch(r"patch_merger(\d+)x", str(config.vision_projector_type))
        if found is None:
            raise CheckpointError(
                f"config.json: unknown vision_projector_type {config.vision_projector_type!r}; "
                "this version reads patch_merger2x and its siblings (patch_merger3x, patch_merger4x, ...)"
            )
        merge = vision.spatial_merge_size
        if int(found.group(1)) != merge:
            raise CheckpointError(
                f"config.json: vision_projector_type {config.vision_projector_type!r} disagrees with "
                f"vision_config.spatial_merge_size {merge}; make them name the same number"
            )
        self.window = merge * merge
        self.ln_q = nn.LayerNorm(vision.embed_dim, eps=1e-6)
        wide = vision.embed_dim * self.window
        self.mlp = nn.Sequential(nn.Linear(wide, wide), nn.GELU(), nn.Linear(wide, config.text_config.hidden_size))

    def forward(self, features_SD: Tensor) -> Tensor:
        """[S, vision width] -> [S / m^2, decoder width]; consecutive rows form one window."""
        x = self.ln_q(features_SD)
        return self.mlp(x.reshape(-1, x.shape[-1] * self.window))


class VisionAbstractor(nn.Module):
    """Holds the projector under the published parameter names (`vision_abstractor.projection.*`)."""

    def __init__(self, config: MinerUDiffusionConfig) -> None:
        super().__init__()
        self.projection = PatchMerger(config)

    def forward(self, features_SD: Tensor) -> Tensor:
        return self.projection(features_SD)
