"""One file per method, all on the interface of `base`."""

from merlin.learners.am import ActionableModels
from merlin.learners.base import LEARNERS, Learner, Policy, PolicyWithMemory, configure
from merlin.learners.beso import Beso
from merlin.learners.dd import DecisionDiffuser
from merlin.learners.gcsl import GCSL
from merlin.learners.gdql import GDQL
from merlin.learners.gofar import GoFAR
from merlin.learners.merlin import Merlin
from merlin.learners.plus import MerlinPlus
from merlin.learners.wgcsl import WGCSL

LEARNERS["merlin"] = Merlin
LEARNERS["merlin-plus"] = MerlinPlus
LEARNERS["gcsl"] = GCSL
LEARNERS["wgcsl"] = WGCSL
LEARNERS["am"] = ActionableModels
LEARNERS["gofar"] = GoFAR
LEARNERS["dd"] = DecisionDiffuser
LEARNERS["g-dql"] = GDQL
LEARNERS["beso"] = Beso

__all__ = [
    "ActionableModels",
    "Beso",
    "DecisionDiffuser",
    "GCSL",
    "GDQL",
    "GoFAR",
    "LEARNERS",
    "Learner",
    "Merlin",
    "MerlinPlus",
    "Policy",
    "PolicyWithMemory",
    "WGCSL",
    "configure",
]
