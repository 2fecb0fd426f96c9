"""A policy as data for the page: its weights if it can run in the browser, else episodes."""

import base64
from pathlib import Path
from typing import Any

import numpy as np

from merlin.deploy.map import Map
from merlin.deploy.weights import Weights, read
from merlin.envs.batch import make_single
from merlin.envs.point import BOUND, TOLERANCE, WALL_GAP, Arena, PointEnv
from merlin.envs.raster import AGENT_RADIUS
from merlin.envs.registry import Task
from merlin.envs.rollout import Rollout
from merlin.errors import MerlinError
from merlin.evaluation.evaluate import play
from merlin.training.policy_schema import read_policy
from merlin.training.runs import load_policy

NO_PLACES = np.zeros((0, 2), np.float32)


def policy_data(file: Path, task: Task, episodes: int) -> dict[str, Any]:
    """One entry of the page, ready for JSON."""
    _, about = read_policy(file)
    entry = {"task": task.name, "algo": about["algo"], "seed": about.get("seed", 0)}
    arena, weights = _arena(task), _weights(file)
    if arena is not None and weights is not None and weights.simple:
        return {**entry, "kind": "live", **_acting(weights, task), "arena": _floor(arena)}
    played = play(load_policy(file), task, episodes=episodes)
    policy_map = None if weights is None else weights.map
    return {**entry, "kind": "recorded", "recorded": recorded(played, task, policy_map, arena)}


def _arena(task: Task) -> Arena | None:
    """The arena, if the page implements the dynamics of the task."""
    if task.entry_point != f"{PointEnv.__module__}:{PointEnv.__name__}":
        return None
    env = make_single(task)
    arena = env.arena if isinstance(env, PointEnv) else None
    env.close()
    return arena


def _weights(file: Path) -> Weights | None:
    """The weights of a policy on vectors that NumPy can run."""
    try:
        weights = read(file)
    except MerlinError:
        return None
    return weights if weights.cnn is None else None


def _acting(weights: Weights, task: Task) -> dict[str, Any]:
    arrays = (
        *(*weights.observation, *weights.goal, weights.action_centre, weights.action_scale),
        *(array for layer in (*weights.layers, *weights.low) for array in layer),
    )
    flat = np.concatenate([array.ravel() for array in arrays]).astype("<f4")
    return {
        "dimensions": [task.observation_dim, task.goal_dim, task.action_dim],
        "sizes": [
            len(weights.layers[0].weight),
            *(len(layer.bias) for layer in weights.layers),
        ],
        "lowSizes": [len(layer.weight) for layer in weights.low]
        + [task.action_dim] * bool(weights.low),
        "activation": weights.constants.activation,
        "squash": weights.constants.squash,
        "horizon": weights.horizon,
        "maxPeriod": weights.max_period,
        "horizonDim": weights.constants.horizon_dim,
        "minStd": weights.constants.min_std,
        "episodeSteps": task.episode_steps,
        "weights": base64.b64encode(flat.tobytes()).decode(),
    }


def _floor(arena: Arena) -> dict[str, Any]:
    return {
        "bound": BOUND,
        "gap": WALL_GAP,
        "tolerance": TOLERANCE,
        "radius": AGENT_RADIUS,
        "walls": arena.walls,
        "obstacles": arena.obstacles,
    }


def recorded(
    played: Rollout, task: Task, policy_map: Map | None = None, arena: Arena | None = None
) -> dict[str, Any]:
    """Paths and goals for the page to draw, over walls and the map of the policy, if any."""
    success, achieved, desired = played.success[:, -1], played.achieved_goals, played.desired_goals
    drawn = policy_map if achieved.shape[-1] in (2, 3) else None
    centres = np.zeros((0, 3), np.float32) if drawn is None else drawn.centres
    views = _views(achieved, desired, centres, task.tolerance)
    if arena is not None:
        edges = {"low": [-BOUND, -BOUND], "high": [BOUND, BOUND], "walls": arena.walls}
        views = [{**view, **edges} for view in views]
    return {
        "summary": f"{int(success.sum())} of {len(success)} successful",
        "success": played.success.astype(bool).tolist(),
        "views": views,
        "map": None if drawn is None else _map(drawn, achieved, desired),
    }


def _map(policy_map: Map, achieved: np.ndarray, desired: np.ndarray) -> dict[str, Any]:
    """Passages of the shortest lag, and for each episode its places and the waypoints from them.

    Longer passages would hide the map. The places of a small dataset are repeated in its tables.
    """
    begin, end = np.nonzero(policy_map.steps == policy_map.least)
    pairs = np.stack([np.minimum(begin, end), np.maximum(begin, end)], axis=1)
    goals = policy_map.place(desired)
    return {
        "edges": np.unique(pairs, axis=0).tolist(),
        "next": [policy_map.ahead[:, goal].tolist() for goal in goals],
        "at": [policy_map.place(path).tolist() for path in achieved],
    }


def _views(
    achieved: np.ndarray, desired: np.ndarray, centres: np.ndarray, tolerance: float | None
) -> list[dict[str, Any]]:
    """Projections of the points that a goal consists of, or each of its numbers over time."""
    episodes, states, size = achieved.shape
    if size % 3 and size != 2:
        time = np.broadcast_to(np.arange(states)[None, :, None], achieved.shape)
        paths = np.stack([time, achieved], -1).transpose(0, 2, 1, 3)
        goals = np.stack([np.zeros_like(desired), desired], -1)
        return [_view("Over time", ("step", "goal"), paths, goals, NO_PLACES, tolerance, False)]
    axes = 2 if size == 2 else 3
    points = achieved.reshape(episodes, states, -1, axes).transpose(0, 2, 1, 3)
    targets = desired.reshape(episodes, -1, axes)
    # The reward bounds the distance of all points together, so several have no disc of their own.
    near = tolerance if size == axes else None
    seen = [("From above", ("x", "y"), [0, 1]), ("From the side", ("x", "z"), [0, 2])]
    return [
        _view(title, names, points[..., own], targets[..., own], centres[:, own], near)
        for title, names, own in seen[: axes - 1]
    ]


def _view(
    title: str,
    labels: tuple[str, str],
    paths: np.ndarray,  # (episodes, points, states, 2)
    goals: np.ndarray,  # (episodes, points, 2)
    centres: np.ndarray,  # (places, 2)
    tolerance: float | None,
    plane: bool = True,
) -> dict[str, Any]:
    everything = np.concatenate([paths.reshape(-1, 2), goals.reshape(-1, 2), centres])
    low, high = everything.min(0), everything.max(0)
    room = np.maximum(0.06 * (high - low), tolerance or 0.0)
    if not plane:
        room[0] = 0.0
    low, high = low - room, high + room
    flat = high - low < 1e-6
    low, high = low - 0.5 * flat, high + 0.5 * flat
    digits = [0 if span >= 10 else 1 if span >= 2 else 2 for span in high - low]
    return {
        "title": title,
        "labels": labels,
        "plane": plane,
        "tolerance": tolerance,
        "low": low.round(4).tolist(),
        "high": high.round(4).tolist(),
        "digits": digits,
        "paths": paths.astype(float).round(4).tolist(),
        "goals": goals.astype(float).round(4).tolist(),
        "places": centres.astype(float).round(4).tolist(),
        "walls": [],
    }
