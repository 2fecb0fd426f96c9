"""Options that say how somebody else's environment is to be used."""

import dataclasses
from dataclasses import dataclass

import tyro

from merlin.envs import names
from merlin.envs.registry import own
from merlin.errors import MerlinError


@dataclass(frozen=True)
class EnvironmentOptions:
    """How to use an environment that is named by module:EnvId."""

    max_steps: int | None = None
    """Time limit of an environment of your own, if it has none or another is wanted."""
    env_args: tuple[str, ...] = ()
    """Arguments to make it with, as key=value."""
    success_key: str | None = None
    """Key of info that says whether its goal is reached; is_success or success unless given."""
    goal_reward: float | None = None
    """Lowest reward that means that its goal is reached, if info does not say so."""

    def of(self, task: str) -> str:
        """The full name of an environment used so."""
        given = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if getattr(self, field.name) != field.default
        }
        if not given:
            return task
        if own(task):
            flag = next(iter(given)).replace("_", "-")
            raise MerlinError(
                f"--{flag}: is for environments of your own, named as module:EnvId; {task} is one "
                "of merlin's tasks."
            )
        known = names.parse(task)
        pairs = dict(_pair(text) for text in given.pop("env_args", ()))
        merged = {**known.arguments, **pairs}
        return str(dataclasses.replace(known, **given, arguments=merged))


OwnEnvironment = tyro.conf.OmitArgPrefixes[EnvironmentOptions]
DEFAULT = EnvironmentOptions()


def _pair(text: str) -> tuple[str, object]:
    key, equals, value = text.partition("=")
    if not (key.isidentifier() and equals):
        raise MerlinError(f"--env-args {text}: is not key=value, e.g. --env-args max_force=2.")
    return key, names.read_value(value)
