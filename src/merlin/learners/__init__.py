"""One file per method, all on the interface of `base`."""

from merlin.learners.am import ActionableModels
from merlin.learners.base import LEARNERS, Learner, Policy, configure
from merlin.learners.gcsl import GCSL
from merlin.learners.gofar import GoFAR
from merlin.learners.merlin import Merlin
from merlin.learners.wgcsl import WGCSL

LEARNERS["merlin"] = Merlin
LEARNERS["gcsl"] = GCSL
LEARNERS["wgcsl"] = WGCSL
LEARNERS["am"] = ActionableModels
LEARNERS["gofar"] = GoFAR

__all__ = [
    "ActionableModels",
    "GCSL",
    "GoFAR",
    "LEARNERS",
    "Learner",
    "Merlin",
    "Policy",
    "WGCSL",
    "configure",
]
