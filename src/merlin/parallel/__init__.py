"""Parallel jobs, in worker processes or on a Ray cluster, with the same results."""
