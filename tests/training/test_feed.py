from __future__ import annotations

import numpy as np
import torch

from mineru_diffusion.model.images import ImageProcessor
from mineru_diffusion.training.feed import grey_patch_rows


def test_patch_rows_are_cut_alike_on_every_device() -> None:
    processor = ImageProcessor(patch_size=4, merge_size=2)
    images = np.random.default_rng(0).integers(0, 256, (3, 16, 24), dtype=np.uint8)
    found = grey_patch_rows(torch.from_numpy(images), processor)
    torch.testing.assert_close(found, torch.from_numpy(processor.patch_rows_grey(images)), atol=1e-6, rtol=1e-6)
