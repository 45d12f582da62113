"""The mathematics of block-wise masked diffusion: masks, noising, unmasking. Pure functions on tensors, used by the
engine and by training; imports nothing else of this package."""
