"""Names of user environments: `module:EnvId?option=value&...`.

The name contains all that is needed to make the environment. Datasets and runs store it as text.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, quote

from merlin.errors import MerlinError
from merlin.io.files import parse_json

MIN_STEPS = 2
"""Shortest time limit: collected episodes have as many states as steps, and need an action."""
_ARGUMENT = "args."
"""Prefix of options that are arguments of the environment itself."""


@dataclass(frozen=True)
class EnvName:
    """The id of an environment, the module that registers it, and its options."""

    env_id: str
    module: str | None = None
    max_steps: int | None = None  # time limit; by default the registered one
    success_key: str | None = None  # key of info that reports success
    goal_reward: float | None = None  # lowest reward at a goal
    arguments: Mapping[str, Any] = field(default_factory=dict)  # of the environment

    def __post_init__(self) -> None:
        if self.max_steps is not None and self.max_steps < MIN_STEPS:
            raise MerlinError(
                f"max_steps: {self.max_steps} is below {MIN_STEPS}; give {MIN_STEPS} or more."
            )
        if self.goal_reward is not None and not math.isfinite(self.goal_reward):
            raise MerlinError(f"goal_reward: {self.goal_reward} is not a number; give a reward.")
        if self.goal_reward is not None and self.success_key is not None:
            raise MerlinError(
                "goal_reward: cannot be combined with success_key, since either decides when a "
                "goal is reached; give one of the two."
            )
        if self.module is not None and not all(map(str.isidentifier, self.module.split("."))):
            raise MerlinError(
                f"task {self.base}: {self.module!r} is not the name of a module, such as "
                "package.module; check it."
            )
        for key, value in self.arguments.items():
            if not isinstance(value, (str, int, float, bool)):
                raise MerlinError(f"env_args {key}: must be a number or a string.")

    @property
    def base(self) -> str:
        """The name without options."""
        return f"{self.module}:{self.env_id}" if self.module else self.env_id

    def __str__(self) -> str:
        plain = {"max_steps": self.max_steps, "goal_reward": self.goal_reward}
        options = {key: f"{value:g}" for key, value in plain.items() if value is not None}
        if self.success_key is not None:
            options["success_key"] = quote(self.success_key, safe="")
        for key, value in sorted(self.arguments.items()):
            text = value if isinstance(value, str) and _word(value) else json.dumps(value)
            options[_ARGUMENT + key] = quote(text, safe="")
        query = "&".join(f"{key}={value}" for key, value in options.items())
        return f"{self.base}?{query}" if query else self.base


def parse(name: str) -> EnvName:
    """Parse a name; `str` is the inverse."""
    base, _, query = name.partition("?")
    module, _, env_id = base.rpartition(":")
    values: dict[str, Any] = {}
    arguments = {}
    for key, text in parse_qsl(query, keep_blank_values=True):
        if key.startswith(_ARGUMENT):
            arguments[key.removeprefix(_ARGUMENT)] = read_value(text)
        elif key == "success_key":
            values[key] = text
        elif key in ("max_steps", "goal_reward"):
            kind = int if key == "max_steps" else float
            try:
                values[key] = kind(text)
            except ValueError:
                raise MerlinError(f"task {name}: {key}={text} is not a number.") from None
        else:
            raise MerlinError(f"task {name}: has no option {key!r}; check its name.")
    return EnvName(env_id, module or None, arguments=arguments, **values)


def read_value(text: str) -> Any:
    """Parse numbers, true and false; anything else stays text."""
    try:
        value = parse_json(text)
    except ValueError:
        return text
    return value if isinstance(value, (bool, int, float, str)) else text


def _word(text: str) -> bool:
    """Whether `read_value` returns the text unchanged."""
    return read_value(text) == text and isinstance(read_value(text), str)
