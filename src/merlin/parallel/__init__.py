"""Jobs side by side, in worker processes or on a Ray cluster: same jobs, same results."""
