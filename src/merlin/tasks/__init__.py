"""Goal environments, and episodes played in them."""

from merlin.tasks.registry import TASKS, VARIANTS, Task, find, register

__all__ = ["TASKS", "VARIANTS", "Task", "find", "register"]
