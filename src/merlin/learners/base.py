"""What every method is: the base class of learners, and what they check their settings with."""

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
from merlin.policies.base import Policy
from merlin.types import Batch, Metrics, Spec, State


class Learner(abc.ABC):
    """A method: a frozen dataclass whose fields are its hyperparameters.

    Classes are abstract or final: a method implements what is abstract here and inherits from no
    other method.
    """

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Values of fields by the name of a preset."""
    absent: ClassVar[Mapping[str, Any]] = {}
    """Values of fields that run folders of earlier versions do not record."""
    by_dataset: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Published values of fields that are `tuned`, by a word in the name of an OGBench dataset."""

    def __post_init__(self) -> None:
        """Refuse settings that nothing can be learned with; methods add what is their own."""
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
        """Which transitions and which goals it learns from."""

    @property
    def horizon(self) -> int | None:
        """What the policy is told as horizon when it acts; None if it is not told any."""
        return None

    def long_values(self, states: int) -> Mapping[str, Any]:
        """Values of `tuned` fields that episodes of so many states call for."""
        return {}

    @property
    def sees_images(self) -> bool:
        """Whether it takes images as observations; if not, it is given latents in their place."""
        return True

    @property
    def optimiser(self) -> optax.GradientTransformation:
        return optax.adam(self.learning_rate)

    def check(self, data: Dataset) -> None:
        """Refuse data that the method cannot learn from, before anything is written."""
        return None

    def survey(self, data: Dataset, spec: Spec) -> Spec:
        """Add to the description of the data what the method needs beside it."""
        return spec

    @abc.abstractmethod
    def init(self, key: PRNGKeyArray, spec: Spec) -> State:
        """Everything that training changes or needs, as one pytree of arrays."""

    @abc.abstractmethod
    def update(self, state: State, batch: Batch, key: PRNGKeyArray) -> tuple[State, Metrics]:
        """One gradient step, pure: same arguments, same result."""

    @abc.abstractmethod
    def policy(self, state: State) -> Policy: ...


def check_sizes(learner: Learner, *names: str) -> None:
    """Refuse fields that are no whole numbers from 1 up, or tuples without any."""
    for name in names:
        value = vars(learner)[name]
        if min(value if isinstance(value, tuple) else (value,), default=0) < 1:
            raise MerlinError(f"{name}: {value} is not a size; sizes start at 1.")


def check_positive(learner: Learner, *names: str) -> None:
    """Refuse fields that are no number above 0."""
    _refuse(learner, names, lambda value: 0 < value < math.inf, "is not a positive number")


def check_not_negative(learner: Learner, *names: str) -> None:
    """Refuse fields that are no number from 0 up."""
    _refuse(learner, names, lambda value: 0 <= value < math.inf, "is not a number from 0 up")


def check_below_one(learner: Learner, *names: str) -> None:
    """Refuse fields that are no share from 0 to below 1."""
    _refuse(learner, names, lambda value: 0 <= value < 1, "is not from 0 to below 1")


def _refuse(
    learner: Learner, names: Sequence[str], fits: Callable[[float], bool], what: str
) -> None:
    for name in names:
        value = vars(learner)[name]
        if not fits(value):
            raise MerlinError(f"{name}: {value} {what}.")


def check_discount(discount: float) -> None:
    """Refuse a discount with which nothing, or everything for ever, counts."""
    if not 0 < discount < 1:
        raise MerlinError(f"discount: {discount} is not between 0 and 1.")


class Cloning(eqx.Module):
    """The state of behaviour cloning methods: the policy, its optimiser and averaged parameters."""

    policy: Any
    optimiser: optax.OptState
    average: Any = None  # of the policy's network; None if the method does not average


def within(spec: Spec, max_horizon: int | None) -> Spec:
    """What a learner knows of data of which it uses no longer horizon."""
    if max_horizon is None:
        return spec
    return spec._replace(max_horizon=min(spec.max_horizon, max_horizon))


def tuned(default: Any) -> Any:
    """A field whose value was tuned per task: `configure` takes it from the task registry."""
    return dataclasses.field(default=default, metadata={"tuned": True})


def known_tolerance(own: float | None, spec: Spec) -> float:
    """How near to a goal counts as reached: as the learner was set, or as the task says."""
    tolerance = spec.tolerance if own is None else own
    if tolerance is None:
        raise MerlinError(
            "tolerance: it is not known how near to a goal counts as reached; name the task, or "
            "set a distance, as in tolerance=0.05."
        )
    return tolerance
