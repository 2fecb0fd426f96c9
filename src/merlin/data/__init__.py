"""Trajectories on disk and in memory, and what a learner is shown of them."""

from merlin.data.dataset import Dataset, Episode
from merlin.data.native import load, save
from merlin.data.relabel import Relabel

__all__ = ["Dataset", "Episode", "Relabel", "load", "save"]
