"""One file per method, all on the interface of `base`."""

from merlin.learners.base import LEARNERS, Learner, Policy, configure
from merlin.learners.merlin import Merlin

LEARNERS["merlin"] = Merlin

__all__ = ["LEARNERS", "Learner", "Merlin", "Policy", "configure"]
