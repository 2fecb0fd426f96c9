"""Networks and functions on them: layers, CNN, U-Net, transformer, diffusion."""
