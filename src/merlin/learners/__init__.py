"""One file per method, all on the interface of `base`."""

from merlin.learners.base import LEARNERS, Learner, Policy, PolicyWithMemory, configure
from merlin.learners.beso import Beso
from merlin.learners.dd import DecisionDiffuser
from merlin.learners.gdql import GDQL
from merlin.learners.merlin import Merlin

LEARNERS["merlin"] = Merlin
LEARNERS["dd"] = DecisionDiffuser
LEARNERS["g-dql"] = GDQL
LEARNERS["beso"] = Beso

__all__ = [
    "Beso",
    "DecisionDiffuser",
    "GDQL",
    "LEARNERS",
    "Learner",
    "Merlin",
    "Policy",
    "PolicyWithMemory",
    "configure",
]
