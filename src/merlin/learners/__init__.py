"""Learning methods: one file per method, each a `Learner` (see `base`)."""

from merlin.learners.am import ActionableModels
from merlin.learners.base import Learner
from merlin.learners.beso import Beso
from merlin.learners.crl import CRL
from merlin.learners.dd import DecisionDiffuser
from merlin.learners.gcbc import GCBC
from merlin.learners.gciql import GCIQL
from merlin.learners.gcivl import GCIVL
from merlin.learners.gcsl import GCSL
from merlin.learners.gdql import GDQL
from merlin.learners.gofar import GoFAR
from merlin.learners.hiql import HIQL
from merlin.learners.map import MerlinMap
from merlin.learners.merlin import Merlin
from merlin.learners.plus import MerlinPlus
from merlin.learners.qrl import QRL
from merlin.learners.wgcsl import WGCSL

LEARNERS: dict[str, type[Learner]] = {
    "merlin": Merlin,
    "merlin-plus": MerlinPlus,
    "merlin-map": MerlinMap,
    "gcsl": GCSL,
    "wgcsl": WGCSL,
    "am": ActionableModels,
    "gofar": GoFAR,
    "dd": DecisionDiffuser,
    "g-dql": GDQL,
    "beso": Beso,
    "gcbc": GCBC,
    "gcivl": GCIVL,
    "gciql": GCIQL,
    "qrl": QRL,
    "crl": CRL,
    "hiql": HIQL,
}
"""All methods, keyed by their name on the command line."""

__all__ = [
    "ActionableModels",
    "Beso",
    "CRL",
    "DecisionDiffuser",
    "GCBC",
    "GCIQL",
    "GCIVL",
    "GCSL",
    "GDQL",
    "GoFAR",
    "HIQL",
    "LEARNERS",
    "Learner",
    "Merlin",
    "MerlinMap",
    "MerlinPlus",
    "QRL",
    "WGCSL",
]
