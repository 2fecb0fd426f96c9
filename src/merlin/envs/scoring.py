"""When a goal counts as reached, according to `info` or the reward."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from merlin.errors import MerlinError

SUCCESS_KEYS = ("is_success", "success")
"""Keys of `info` that may report success, in order of preference."""


@dataclass(frozen=True)
class Scoring:
    """How an environment reports that its goal is reached.

    `success_key` determines success and `goal_reward` the return. If one of them is None, the other
    determines both.
    """

    success_key: str | None = None  # of info
    goal_reward: float | None = None  # a reward this high or higher means that the goal is reached
    rewards: tuple[float, ...] = ()  # the only possible rewards, or empty for any

    def __post_init__(self) -> None:
        assert (self.success_key, self.goal_reward) != (None, None)

    def __call__(self, task: str, reward: float, info: Mapping[str, Any]) -> tuple[bool, bool]:
        """Whether the goal is reached after a step: for the return, and for success."""
        by_info = self._by_info(task, info) if self.success_key is not None else None
        by_reward = self._by_reward(task, reward) if self.goal_reward is not None else None
        first = by_info if by_reward is None else by_reward
        second = by_reward if by_info is None else by_info
        assert first is not None
        assert second is not None
        return first, second

    def _by_info(self, task: str, info: Mapping[str, Any]) -> bool:
        assert self.success_key is not None
        if self.success_key not in info:
            raise MerlinError(
                f"task {task}: a step returned no info[{self.success_key!r}], which reports "
                "success; set it in every step, or give another key with `success_key`."
            )
        value = info[self.success_key]
        if np.size(value) != 1 or np.ravel(value)[0] not in (0, 1):
            raise MerlinError(
                f"task {task}: info[{self.success_key!r}] is {value!r}, which is neither true nor "
                "false; give another key with `success_key`."
            )
        return bool(np.ravel(value)[0])

    def _by_reward(self, task: str, reward: float) -> bool:
        if self.rewards and reward not in self.rewards:
            known = " or ".join(f"{value:g}" for value in self.rewards)
            raise MerlinError(
                f"task {task}: a step returned the reward {reward:g}, not {known}, so it is not "
                "known whether the goal is reached; give a key of info with `success_key`, or the "
                "lowest reward at a goal with `goal_reward`."
            )
        assert self.goal_reward is not None
        return reward >= self.goal_reward

    def in_words(self) -> dict[str, str]:
        """The sources of success and return, for display."""
        by_info = f"info[{self.success_key!r}]"
        by_reward = f"reward >= {self.goal_reward:g}" if self.goal_reward is not None else by_info
        return {
            "success": by_info if self.success_key is not None else by_reward,
            "return": by_reward,
        }


NEGATIVE = Scoring("is_success", 0.0, (-1.0, 0.0))
"""The paper's tasks: a reward of -1 until the goal is reached, then 0."""


def infer(
    task: str,
    info_keys: set[str],
    rewards: set[float],
    reward_at_goal: float | None,
    *,
    success_key: str | None = None,
    goal_reward: float | None = None,
) -> Scoring:
    """Infer the scoring of an environment from its steps; raises if it is ambiguous.

    `info_keys` are the keys of `info` present in every step, `rewards` are all observed rewards,
    and `reward_at_goal` is the value of `compute_reward` for an achieved goal, if it exists. The
    user's choice, `success_key` or `goal_reward`, takes precedence.
    """
    if success_key is not None:
        if success_key not in info_keys:
            known = ", ".join(sorted(info_keys)) or "no keys"
            raise MerlinError(
                f"success_key: info of {task} does not contain {success_key!r} in every step; "
                f"it contains {known}."
            )
        return Scoring(success_key)
    if goal_reward is not None:
        return Scoring(goal_reward=goal_reward)
    for key in SUCCESS_KEYS:
        if key in info_keys:
            return Scoring(key)
    seen = rewards | ({reward_at_goal} if reward_at_goal is not None else set())
    for values in ((-1.0, 0.0), (0.0, 1.0)):
        low, high = values
        shows_it = (low != 0.0 and low in seen) or (high != 0.0 and high in seen)
        if seen <= set(values) and shows_it and reward_at_goal in (None, high):
            return Scoring(goal_reward=high, rewards=values)
    shown = ", ".join(f"{value:g}" for value in sorted(seen)[:4])
    raise MerlinError(
        f"task {task}: it is not known when its goal is reached: info has neither 'is_success' nor "
        f"'success' in every step, and rewards such as {shown} are neither clearly -1 and 0 nor "
        "0 and 1; give a key of info with `success_key`, or the lowest reward at a goal with "
        "`goal_reward`."
    )
