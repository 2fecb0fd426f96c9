"""merlin play"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Play:
    """stub"""
