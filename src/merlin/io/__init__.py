"""Files, locks, progress bars and signals: everything on disk or terminal. No JAX."""
