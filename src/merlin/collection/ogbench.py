"""OGBench's data made again, by the published recipes: another draw than the published files.

In mazes a point follows the shortest way, with noise, to goal cells: one after the other
(navigate), or to one that is four cells away (stitch). Arms do what OGBench's scripted oracles
want, one target after the other: plans with smooth noise (play), or closed loops with noise on
the actions and some actions at random (noisy).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from jaxtyping import Float

from merlin.envs.ogbench import SIZES
from merlin.envs.ogbench_env import OwnRandomness, make_plain

STEPS_PER_JOB = 5000
"""About so many steps are lost when a collection is killed."""
STITCH_CELLS = 4
MAZE_NOISE = 0.5
ARM_NOISE = np.array([0.1, 0.1, 0.1, 0.3, 1.0])
"""Largest deviation of the noise on an arm's actions: position, yaw, gripper."""
STACKING = {"single": (0.0, 0.0), "double": (0.0, 0.25), "triple": (0.05, 0.35)}
STACKING |= {"quadruple": (0.1, 0.5)}
"""Between which the chance of an episode's cubes to be stacked is drawn."""
RANDOM_ACTIONS = {"cube": 0.1, "scene": 0.1, "puzzle": 0.2}
"""Share of random actions in noisy data."""

Cell = tuple[int, int]


class Steps(NamedTuple):
    """Episodes of states and of the actions between them."""

    observations: Float[np.ndarray, "episodes states observation"]
    actions: Float[np.ndarray, "episodes states-1 action"]


class Player(Protocol):
    """Plays an episode of so many states, with all randomness from a generator."""

    def __call__(self, rng: np.random.Generator, states: int) -> tuple[list, list]: ...


def regenerate(memory: dict[str, Any], name: str, seed: int, indices: Sequence[int]) -> Steps:
    """Play episodes of a dataset; each depends on the seed and its index only."""
    if memory.get("regenerating", (None,))[0] != name:
        player = Maze(name) if name.startswith("pointmaze") else Arm(name)
        memory["regenerating"] = (name, player)
    play: Player = memory["regenerating"][1]
    episodes = []
    for index in indices:
        rng = np.random.default_rng(np.random.SeedSequence((seed, index)))
        with OwnRandomness(int(rng.integers(2**32))):
            episodes.append(play(rng, SIZES[name].states))
    observations, actions = zip(*episodes, strict=True)
    return Steps(np.array(observations, np.float32), np.array(actions, np.float32))


def reset(env: Any, rng: np.random.Generator, **options: Any) -> tuple[np.ndarray, dict[str, Any]]:
    """Begin an episode with seeds from the generator."""
    env.action_space.seed(int(rng.integers(2**31)))
    return env.reset(options=options, seed=int(rng.integers(2**31)))


class Maze:
    """A point that walks from cell to cell."""

    def __init__(self, name: str):
        self._env = make_plain(name, terminate_at_goal=False)
        self._stitch = "stitch" in name
        grid = self._env.maze_map == 0
        self._cells: list[Cell] = [(int(i), int(j)) for i, j in np.argwhere(grid)]
        self._corners = [cell for cell in self._cells if not _is_hallway(grid, *cell)]
        self._next: dict[tuple[Cell, Cell], np.ndarray] = {}

    def __call__(self, rng: np.random.Generator, states: int) -> tuple[list, list]:
        env = self._env
        start = _pick(rng, self._cells)
        goal = self._far_from(rng, start) if self._stitch else _pick(rng, self._corners)
        observation, _ = reset(env, rng, task_info={"init_ij": start, "goal_ij": goal})
        noise = rng.normal(0.0, MAZE_NOISE, (states - 1, 2))
        observations, actions = [observation], []
        for deviation in noise:
            ahead = self._ahead(env.get_xy(), env.cur_goal_xy)
            action = np.clip(ahead / (np.linalg.norm(ahead) + 1e-6) + deviation, -1.0, 1.0)
            observation, _, _, _, info = env.step(action)
            if info["success"] and not self._stitch:
                centre = env.ij_to_xy(_pick(rng, self._corners))
                env.set_goal(goal_xy=env.add_noise(centre))
            observations.append(observation)
            actions.append(action)
        return observations, actions

    def _ahead(self, here: np.ndarray, goal: np.ndarray) -> np.ndarray:
        """From here to the next cell on the shortest way, which is searched once for two cells."""
        cells = self._env.xy_to_ij(here), self._env.xy_to_ij(goal)
        if cells not in self._next:
            self._next[cells] = self._env.get_oracle_subgoal(here, goal)[0]
        return self._next[cells] - here

    def _far_from(self, rng: np.random.Generator, start: Cell) -> Cell:
        """A cell that is four steps away, or the same where there is none."""
        there = self._env.ij_to_xy(start)
        distances = self._env.get_oracle_subgoal(there, there)[1]
        far = [cell for cell in self._cells if distances[cell] == STITCH_CELLS]
        return _pick(rng, far or [start])


def _is_hallway(grid: np.ndarray, i: int, j: int) -> bool:
    """Whether a cell is open at two opposite sides and nowhere else."""
    column, row = (grid[i - 1, j], grid[i + 1, j]), (grid[i, j - 1], grid[i, j + 1])
    return (all(column) and not any(row)) or (all(row) and not any(column))


def _pick(rng: np.random.Generator, cells: Sequence[Cell]) -> Cell:
    return cells[int(rng.integers(len(cells)))]


class Arm:
    """An arm that moves cubes, presses buttons, and opens and closes drawer and window."""

    def __init__(self, name: str):
        self._env = make_plain(name, terminate_at_goal=False, mode="data_collection")
        self._noisy = "noisy" in name
        self._scene = name.split("-")[0]
        self._stacking = STACKING.get(name.split("-")[1], (0.5, 0.5))
        self._oracles = _oracles(self._env, self._scene, self._noisy)

    def __call__(self, rng: np.random.Generator, states: int) -> tuple[list, list]:
        while True:
            observations, actions, blocks = self._play(rng, states)
            if self._scene != "scene" or _in_sight(np.array(blocks)):
                return observations, actions

    def _play(self, rng: np.random.Generator, states: int) -> tuple[list, list, list]:
        env = self._env
        observation, info = reset(env, rng)
        stacking = rng.uniform(*self._stacking)
        deviation = rng.uniform() * ARM_NOISE if self._noisy else 0.0 * ARM_NOISE
        chance = RANDOM_ACTIONS[self._scene] if self._noisy else 0.0
        oracle = self._begin(observation, info)
        observations, actions = [observation], []
        blocks = [info.get("privileged/block_0_pos")]
        for _ in range(states - 1):
            if rng.uniform() < chance:
                action = rng.uniform(-1.0, 1.0, 5)
            else:
                action = oracle.select_action(observation, info) + rng.normal(0.0, deviation)
            action = np.clip(action, -1.0, 1.0)
            observation, _, _, _, info = env.step(action)
            if oracle.done:
                # The step's info is of the old target, and of scenes even of earlier episodes.
                _, info = env.set_new_target(p_stack=stacking)
                oracle = self._begin(observation, info)
            observations.append(observation)
            actions.append(action)
            blocks.append(info.get("privileged/block_0_pos"))
        return observations, actions, blocks

    def _begin(self, observation: np.ndarray, info: dict[str, Any]) -> Any:
        """The oracle of the present target, ready for it."""
        oracle = self._oracles[info["privileged/target_task"]]
        oracle.reset(observation, info)
        return oracle


def _in_sight(blocks: Float[np.ndarray, "states 3"]) -> bool:
    """Whether the cube of a scene never was beyond the edges, unless in the drawer."""
    _, y, z = blocks.T
    lost = (y <= -0.3) & ((z < 0.06) | (z > 0.08))
    return not ((y >= 0.29) | lost).any()


def _oracles(env: Any, scene: str, noisy: bool) -> dict[str, Any]:
    """By the kind of target that they reach."""
    if noisy:
        from ogbench.manipspace.oracles.markov.button_markov import ButtonMarkovOracle as Button
        from ogbench.manipspace.oracles.markov.cube_markov import CubeMarkovOracle as Cube
        from ogbench.manipspace.oracles.markov.drawer_markov import DrawerMarkovOracle as Drawer
        from ogbench.manipspace.oracles.markov.window_markov import WindowMarkovOracle as Window
    else:
        from ogbench.manipspace.oracles.plan.button_plan import ButtonPlanOracle as Button
        from ogbench.manipspace.oracles.plan.cube_plan import CubePlanOracle as Cube
        from ogbench.manipspace.oracles.plan.drawer_plan import DrawerPlanOracle as Drawer
        from ogbench.manipspace.oracles.plan.window_plan import WindowPlanOracle as Window
    if scene == "cube":
        return {"cube": Cube(env=env)}
    if scene == "puzzle":
        return {"button": Button(env=env, gripper_always_closed=True)}
    kinds = {"cube": Cube, "button": Button, "drawer": Drawer, "window": Window}
    return {kind: oracle(env=env) for kind, oracle in kinds.items()}
