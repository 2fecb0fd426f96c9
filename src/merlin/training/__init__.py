"""Training: from a learner and a dataset to a finished run."""
