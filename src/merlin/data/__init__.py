"""Trajectories on disk and in memory, and what a learner is shown of them."""

from merlin.data.dataset import Dataset, Episode
from merlin.data.formats import load, save_as
from merlin.data.native import save
from merlin.data.relabel import Relabel

__all__ = ["Dataset", "Episode", "Relabel", "load", "save", "save_as"]
