"""Networks and the functions on them: layers, CNN, U-Net, transformer, diffusion."""
