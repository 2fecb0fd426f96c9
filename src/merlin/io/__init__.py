"""Files, progress and interruption: what touches the disk or the terminal. No JAX here."""
