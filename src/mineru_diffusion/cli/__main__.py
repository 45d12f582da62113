"""`python -m mineru_diffusion.cli`."""

from mineru_diffusion.cli import main

main()
