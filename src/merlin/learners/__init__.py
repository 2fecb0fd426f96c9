"""One file per method, all on the interface of `base`."""

from merlin.learners.base import LEARNERS, Learner, Policy, PolicyWithMemory, configure
from merlin.learners.beso import Beso
from merlin.learners.merlin import Merlin

LEARNERS["merlin"] = Merlin
LEARNERS["beso"] = Beso

__all__ = ["Beso", "LEARNERS", "Learner", "Merlin", "Policy", "PolicyWithMemory", "configure"]
