"""From a learner and a dataset to a trained run."""
