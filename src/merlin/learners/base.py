"""The interface that every method implements, and the registry of methods by name."""

import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from merlin.data.relabel import Relabel
from merlin.errors import MerlinError
from merlin.types import Batch, Metrics, Spec, State


@runtime_checkable
class Policy(Protocol):
    """A pytree that acts: unbatched, callers vmap.

    `horizon` is the number of steps within which the goal should be reached, None for the one
    the policy was made with. `key` is needed only when its temperature is not zero.
    """

    def __call__(
        self,
        observation: ArrayLike,
        goal: ArrayLike,
        horizon: ArrayLike | None = None,
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, " action"]: ...


@runtime_checkable
class PolicyWithMemory(Policy, Protocol):
    """A policy that acts on what it saw before in the same episode.

    `begin` is the memory before an episode, a pytree of arrays; `step` acts and gives the memory
    for the next step. Called as a plain policy, it acts as in the first step.
    """

    def begin(self) -> Any: ...

    def step(
        self,
        memory: Any,
        observation: ArrayLike,
        goal: ArrayLike,
        horizon: ArrayLike | None = None,
        key: PRNGKeyArray | None = None,
    ) -> tuple[Float[Array, " action"], Any]: ...


def require_key(key: PRNGKeyArray | None) -> PRNGKeyArray:
    """For policies that cannot act without randomness."""
    if key is None:
        raise ValueError("a diffusion policy starts from noise: give it a key")
    return key


@runtime_checkable
class Learner(Protocol):
    """A method: a frozen dataclass whose fields are its hyperparameters.

    One whose `sees_images` is False is given latents where the data has images.
    """

    def __hash__(self) -> int: ...

    @property
    def batch_size(self) -> int: ...

    @property
    def horizon(self) -> int | None:
        """What the policy is told as horizon when it acts; None if it is not told any."""
        ...

    @property
    def relabel(self) -> Relabel:
        """What goals it wants sampled."""
        ...

    def init(self, key: PRNGKeyArray, spec: Spec) -> State:
        """Everything that training changes or needs, as one pytree of arrays."""
        ...

    def update(self, state: State, batch: Batch, key: PRNGKeyArray) -> tuple[State, Metrics]:
        """One gradient step, pure: same arguments, same result."""
        ...

    def policy(self, state: State) -> Policy: ...


LEARNERS: dict[str, type] = {}
"""Method classes by the name that the command line knows them by."""


def tuned(default: Any) -> Any:
    """A field whose value was tuned per task: `configure` takes it from the task registry."""
    return dataclasses.field(default=default, metadata={"tuned": True})


@runtime_checkable
class Sized(Protocol):
    """The hyperparameters that every method has."""

    @property
    def batch_size(self) -> int: ...

    @property
    def hidden(self) -> tuple[int, ...]: ...

    @property
    def learning_rate(self) -> float: ...


def check_settings(learner: Sized) -> None:
    """Refuse sizes and rates that nothing can be learned with."""
    if learner.batch_size < 1 or not learner.hidden or min(learner.hidden) < 1:
        raise MerlinError("batch_size, hidden: sizes start at 1.")
    check_positive(learner, "learning_rate")


def check_positive(learner: object, *names: str) -> None:
    """Refuse fields that are no number above 0."""
    for name in names:
        value = getattr(learner, name)
        if not (math.isfinite(value) and value > 0):
            raise MerlinError(f"{name}: {value} is not a positive number.")


def check_not_negative(learner: object, *names: str) -> None:
    """Refuse fields that are no number from 0 up."""
    for name in names:
        value = getattr(learner, name)
        if not (math.isfinite(value) and value >= 0):
            raise MerlinError(f"{name}: {value} is not a number from 0 up.")


def check_below_one(learner: object, *names: str) -> None:
    """Refuse fields that are no share from 0 to below 1."""
    for name in names:
        if not 0 <= getattr(learner, name) < 1:
            raise MerlinError(f"{name}: {getattr(learner, name)} is not from 0 to below 1.")


def check_horizon(horizon: int | None) -> None:
    """Refuse a horizon that is no number of steps."""
    if horizon is not None and horizon < 1:
        raise MerlinError(f"horizon: {horizon} is below 1; give a number of steps, or none.")


def configure(
    name: str,
    settings: Mapping[str, str] | None = None,
    tuned_values: Mapping[str, Any] | None = None,
    preset: str | None = None,
) -> Learner:
    """Build the method `name` from text settings, over a preset, over tuned values, over defaults.

    A preset is a named set of values in the class variable `presets` of the method.
    """
    if name not in LEARNERS:
        raise MerlinError(f"--algo: no method is called {name!r}; {instead(name, LEARNERS)}.")
    return build(name, LEARNERS[name], settings or {}, tuned_values or {}, preset)


def build(
    name: str,
    kind: type,
    settings: Mapping[str, str],
    tuned_values: Mapping[str, Any],
    preset: str | None,
) -> Any:
    """An instance of a dataclass of hyperparameters; `name` is what errors call it."""
    fields = {field.name: field for field in dataclasses.fields(kind)}
    hints = typing.get_type_hints(kind)
    values = {
        key: value
        for key, value in tuned_values.items()
        if key in fields and fields[key].metadata.get("tuned")
    }
    if preset is not None:
        presets: Mapping[str, Mapping[str, Any]] = getattr(kind, "presets", {})
        if preset not in presets:
            known = instead(preset, presets) if presets else f"{name} has none"
            raise MerlinError(f"--preset: {name} has no preset {preset!r}; {known}.")
        values |= presets[preset]
    for key, text in settings.items():
        if key not in fields:
            raise MerlinError(f"--set: {name} has no field {key!r}; {instead(key, fields)}.")
        values[key] = _parse(text, hints[key], f"--set {key}={text}")
    return kind(**values)


def instead(name: str, known: Mapping[str, Any]) -> str:
    """What to try for a name that is not known."""
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"choose from {', '.join(known)}"


def _parse(text: str, kind: Any, where: str) -> Any:
    """Read `text` as a value of the annotated type of a field."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if type(None) in arguments and text.lower() == "none":
            return None
        for option in arguments:
            if option is not type(None):
                try:
                    return _parse(text, option, where)
                except MerlinError:
                    continue
        names = ", ".join("none" if a is type(None) else a.__name__ for a in arguments)
        raise MerlinError(f"{where}: is none of {names}.")
    if origin is tuple:
        return tuple(_parse(part, arguments[0], where) for part in text.split(","))
    if kind is bool:
        if text.lower() in ("true", "false"):
            return text.lower() == "true"
        raise MerlinError(f"{where}: write true or false.")
    try:
        return kind(text)
    except ValueError:
        example = {int: "a whole number", float: "a number"}.get(kind, kind.__name__)
        raise MerlinError(f"{where}: {text!r} is not {example}.") from None
