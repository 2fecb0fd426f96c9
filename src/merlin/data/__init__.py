"""Trajectories on disk and in memory, and how minibatches are sampled from them."""

from merlin.data.dataset import Dataset, Episode
from merlin.data.formats import load, save_as
from merlin.data.formats.native import save
from merlin.data.goals import Goals, Sampling

__all__ = ["Dataset", "Episode", "Goals", "Sampling", "load", "save", "save_as"]
