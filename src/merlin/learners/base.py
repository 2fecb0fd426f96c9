"""The base class of all learners, and checks of their hyperparameters."""

import abc
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import equinox as eqx
import optax
from jaxtyping import PRNGKeyArray

from merlin.data import Dataset
from merlin.data.goals import Sampling
from merlin.errors import MerlinError
from merlin.io.settings import check_types
from merlin.policies.base import Policy
from merlin.types import Batch, Metrics, Spec, State


class Learner(abc.ABC):
    """A learning method: a frozen dataclass whose fields are its hyperparameters.

    Classes are either abstract or final. A method implements the abstract members below and never
    inherits from another method.
    """

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Field values of each preset, keyed by the preset's name."""
    absent: ClassVar[Mapping[str, Any]] = {}
    """Values of fields that are missing from run folders of earlier versions."""
    by_dataset: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Published values of `tuned` fields, keyed by a substring of an OGBench dataset's name."""

    def __post_init__(self) -> None:
        """Validate the hyperparameters; subclasses add their own checks."""
        check_types(self)
        check_sizes(self, "batch_size")
        check_positive(self, "learning_rate")
        if self.horizon is not None and self.horizon < 1:
            raise MerlinError(
                f"horizon: {self.horizon} is below 1; give a number of steps, or none."
            )
        _ = self.sampling

    @property
    @abc.abstractmethod
    def batch_size(self) -> int: ...

    @property
    @abc.abstractmethod
    def learning_rate(self) -> float: ...

    @property
    @abc.abstractmethod
    def sampling(self) -> Sampling:
        """How transitions and goals are sampled."""

    @property
    def horizon(self) -> int | None:
        """Horizon the policy is conditioned on when it acts; None if it takes no horizon."""
        return None

    def long_values(self, states: int) -> Mapping[str, Any]:
        """Defaults that differ for episodes with this many states."""
        return {}

    @property
    def sees_images(self) -> bool:
        """Whether the method accepts image observations; if not, it receives latents instead."""
        return True

    @property
    def optimiser(self) -> optax.GradientTransformation:
        return optax.adam(self.learning_rate)

    def check(self, data: Dataset) -> None:
        """Raise an error for data the method cannot learn from; runs before anything is written."""
        return None

    def survey(self, data: Dataset, spec: Spec, *, quiet: bool = True) -> Spec:
        """Add to the spec what the method computes from the data before training, such as a map."""
        return spec

    @abc.abstractmethod
    def init(self, key: PRNGKeyArray, spec: Spec) -> State:
        """Build the training state, a single pytree of arrays."""

    @abc.abstractmethod
    def update(self, state: State, batch: Batch, key: PRNGKeyArray) -> tuple[State, Metrics]:
        """Take one gradient step. Pure: the same arguments give the same result."""

    @abc.abstractmethod
    def policy(self, state: State) -> Policy: ...


def check_sizes(learner: Learner, *names: str) -> None:
    """Raise an error unless the fields are positive integers, or non-empty tuples of them."""
    for name in names:
        value = vars(learner)[name]
        if min(value if isinstance(value, tuple) else (value,), default=0) < 1:
            raise MerlinError(f"{name}: {value} is not a size; sizes start at 1.")


def check_positive(learner: Learner, *names: str) -> None:
    """Raise an error unless the fields are positive, finite numbers."""
    _refuse(learner, names, lambda value: 0 < value < math.inf, "is not a positive number")


def check_not_negative(learner: Learner, *names: str) -> None:
    """Raise an error unless the fields are non-negative, finite numbers."""
    _refuse(learner, names, lambda value: 0 <= value < math.inf, "is not a non-negative number")


def check_below_one(learner: Learner, *names: str) -> None:
    """Raise an error unless the fields are in [0, 1)."""
    _refuse(learner, names, lambda value: 0 <= value < 1, "is not at least 0 and below 1")


def _refuse(
    learner: Learner, names: Sequence[str], fits: Callable[[float], bool], what: str
) -> None:
    for name in names:
        value = vars(learner)[name]
        if not fits(value):
            raise MerlinError(f"{name}: {value} {what}.")


def check_discount(discount: float) -> None:
    """Raise an error unless the discount is in (0, 1)."""
    if not 0 < discount < 1:
        raise MerlinError(f"discount: {discount} is not between 0 and 1.")


class Cloning(eqx.Module):
    """Training state of the cloning methods: policy, optimiser and averaged parameters."""

    policy: Any
    optimiser: optax.OptState
    average: Any = None  # of the policy's network; None if the method does not average


def within(spec: Spec, max_horizon: int | None) -> Spec:
    """The spec with its horizon limited to `max_horizon`."""
    if max_horizon is None:
        return spec
    return spec._replace(max_horizon=min(spec.max_horizon, max_horizon))


def tuned(default: Any) -> Any:
    """A field whose value was tuned per task; `configure` reads it from the task registry."""
    return dataclasses.field(default=default, metadata={"tuned": True})


def known_tolerance(own: float | None, spec: Spec) -> float:
    """Distance within which a goal counts as reached: the learner's setting, or else the task's."""
    tolerance = spec.tolerance if own is None else own
    if tolerance is None:
        raise MerlinError(
            "tolerance: the data does not say how near to a goal counts as reached; name the task, "
            "or set a distance, as in tolerance=0.05."
        )
    return tolerance
