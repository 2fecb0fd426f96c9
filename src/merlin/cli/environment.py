"""Options for user environments."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import tyro

from merlin.envs import names
from merlin.envs.registry import own
from merlin.errors import MerlinError


@dataclass(frozen=True)
class EnvironmentOptions:
    """How to use an environment given as module:EnvId."""

    max_steps: int | None = None
    """Time limit of your own environment, in steps; by default the registered one."""
    env_args: tuple[str, ...] = ()
    """Arguments of your own environment, as key=value."""
    success_key: str | None = None
    """Key of info that reports success; by default is_success or success."""
    goal_reward: float | None = None
    """Lowest reward that means that the goal is reached, if info does not report success."""

    def of_task(self, task: str | None) -> str | None:
        """Like `of`; without a task, no option may be given, since nothing would use it."""
        if task is not None:
            return self.of(task)
        for name in self._given():
            raise MerlinError(
                f"--{name.replace('_', '-')}: applies only to your own environments; "
                "name yours with --task module:EnvId, or leave it out."
            )
        return None

    def _given(self) -> dict[str, Any]:
        """The options that differ from their defaults."""
        return {
            field.name: vars(self)[field.name]
            for field in dataclasses.fields(self)
            if vars(self)[field.name] != field.default
        }

    def of(self, task: str) -> str:
        """The name of the environment together with these options."""
        given = self._given()
        if not given:
            return task
        if own(task):
            flag = next(iter(given)).replace("_", "-")
            raise MerlinError(
                f"--{flag}: applies only to your own environments, given as module:EnvId; omit it "
                f"for {task}, which is one of merlin's tasks."
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
