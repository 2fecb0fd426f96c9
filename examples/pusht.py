"""Push-T: from human demonstrations to a policy, and to its score in the environment.

    python examples/pusht.py prepare logs/pusht --out data/pusht
    merlin train data/pusht --algo merlin-plus --out runs/pusht
    python examples/pusht.py score runs/pusht

`logs/pusht` is Diffusion Policy's replay buffer. Its state is the position of the pusher, the
position of the T and its angle; the goal is the pose of the T. `prepare` changes three things:

- The angle wraps around at 2 pi, so its cosine and sine take its place, scaled by ARM: then a
  distance between two poses weighs turning as much as moving.
- The state gets the last movement of the pusher, since its speed is not recorded.
- Actions are relative to the pusher: the recorded ones are positions, which hardly differ from
  its own, so that a small error in them is a large error in where it moves.

`score` needs the environment: pip install gym-pusht.
"""

import argparse
import json
import warnings
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

import merlin
from merlin.data import Dataset, save
from merlin.data.dataset import LOG, validate
from merlin.errors import MerlinError
from merlin.evaluation.statistics import summary
from merlin.policies.base import Policy

ENVIRONMENT = "gym_pusht/PushT-v0"
TARGET = np.array([256.0, 256.0, np.pi / 4])
"""The pose that the T must reach: its position in pixels and its angle."""
ARM = 60.0
"""Pixels by which a turn of one radian moves the ends of the T, roughly."""
SUCCESS = 0.95
"""Coverage of the target that ends an episode."""
NEAR = 10.0
"""A goal counts as reached within this distance, where about 0.8 of the target is covered. No
recorded state covers 0.95 of it."""
POSE = [4, 5, 6, 7]
"""Which numbers of an observation are the pose of the T."""
NAMES = ["pusher x", "pusher y", "pusher dx", "pusher dy", "T x", "T y", "T cos", "T sin"]


def pose(position: np.ndarray, angle: np.ndarray) -> np.ndarray:
    """A pose of the T as a goal: position, and the direction of its angle in pixels."""
    turned = ARM * np.stack([np.cos(angle), np.sin(angle)], -1)
    return np.concatenate([position, turned], -1).astype(np.float32)


def observation(state: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Observations from states (pusher x, y, T x, y, angle) and the previous states."""
    moved = state[..., :2] - before[..., :2]
    parts = [state[..., :2], moved, pose(state[..., 2:4], state[..., 4])]
    return np.concatenate(parts, -1).astype(np.float32)


def prepare(log: str | Path) -> Dataset:
    """The recording with poses as goals; every episode was meant to reach the target."""
    data = merlin.load(log)
    states = np.asarray(data.observations)
    before = np.roll(states, 1, axis=0)
    before[data.starts[:-1]] = states[data.starts[:-1]]  # an episode starts at rest
    seen = observation(states, before)
    pusher = np.delete(states, data.starts[1:] - 1, axis=0)[:, :2]
    actions = data.actions - pusher
    about = {"rate": 10.0, "units": "pixels", "actions": "delta", "state_names": NAMES}
    changed = replace(
        data,
        observations=seen,
        actions=actions,
        action_low=actions.min(0),
        action_high=actions.max(0),
        achieved_goals=seen[:, POSE],
        desired_goals=np.tile(pose(TARGET[:2], TARGET[2]), (len(data), 1)),
        phi=tuple(POSE),
        provenance={**data.provenance, LOG: {**data.provenance[LOG], **about}},
        source=None,
    )
    return validate(changed, str(log), one_file=True)


def environments(count: int) -> list[gymnasium.Env]:
    """Separate copies of gym-pusht's environment, with states as observations."""
    try:
        import gym_pusht  # noqa: F401  (registers the environment)
    except ImportError:
        raise MerlinError("gym-pusht is not installed; pip install gym-pusht.") from None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [gymnasium.make(ENVIRONMENT, obs_type="state") for _ in range(count)]


@eqx.filter_jit
def step(policy: Policy, memory: Any, seen: Any, goal: Any, keys: Any) -> tuple[Any, Any]:
    """Actions of all episodes, and the policy's memory for the next step."""
    return jax.vmap(policy.step, (0, 0, None, None, 0))(memory, seen, goal, None, keys)


def play(policy: Policy, envs: list[gymnasium.Env], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The best coverage and the least distance to the target of episodes `seed`, `seed` + 1, ...

    An episode ends at a coverage of 0.95, which is success, or after 300 steps.
    """
    states = np.stack([env.reset(seed=seed + k)[0] for k, env in enumerate(envs)])
    before = states.copy()
    goal = jnp.asarray(pose(TARGET[:2], TARGET[2]))
    memory = jax.tree.map(
        lambda leaf: jnp.broadcast_to(leaf, (len(envs), *leaf.shape)), policy.begin()
    )
    best, least = np.zeros(len(envs)), np.full(len(envs), np.inf)
    running, key = np.ones(len(envs), bool), jax.random.key(seed)
    while running.any():
        key, *keys = jax.random.split(key, len(envs) + 1)
        seen = observation(states, before)
        actions, memory = step(policy, memory, seen, goal, jnp.stack(keys))
        targets, before = states[:, :2] + np.asarray(actions, np.float64), states.copy()
        for k in np.flatnonzero(running):
            states[k], _, done, late, info = envs[k].step(np.clip(targets[k], 0.0, 512.0))
            best[k] = max(best[k], info["coverage"])
            running[k] = not (done or late)
        away = np.linalg.norm(pose(states[:, 2:4], states[:, 4]) - np.asarray(goal), axis=1)
        least = np.minimum(least, away)
    return best, least


def score(folder: Path, episodes: int, seed: int, checkpoint: str) -> dict[str, Any]:
    """The verdict of trust on the target, and the scores of the played episodes."""
    run = merlin.load_run(folder, checkpoint=checkpoint)
    judged = run.trust(pose(TARGET[:2], TARGET[2])[None], tolerance=NEAR)
    envs = environments(episodes)
    played = [play(policy, envs, seed) for policy in run.policies]
    best, least = (np.stack(part) for part in zip(*played, strict=True))
    return {
        "run": str(folder),
        "algo": run.config.algo,
        "episodes": episodes,
        "seeds": len(run.policies),
        "trust": {"useful": judged.useful, **asdict(judged.goals[0])},
        "coverage": summary(best),
        "near": summary((least <= NEAR).astype(float)),
        "success": summary((best > SUCCESS).astype(float)),
    }


def show(told: dict[str, Any]) -> str:
    goal = told["trust"]
    numbers = [
        "{} {:.2f} [{:.2f}, {:.2f}]".format(name, told[name]["mean"], *told[name]["ci95"])
        for name in ("coverage", "near", "success")
    ]
    return (
        f"{told['run']} ({told['algo']}): {', '.join(numbers)} in {told['episodes']} episodes; "
        f"trust said: {goal['word']}, confidence {goal['confidence']:.2f}, {goal['support']} "
        f"training episodes pass within {NEAR:g} pixels of the target"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    make = commands.add_parser("prepare", help="write the demonstrations as a dataset")
    make.add_argument("log", type=Path)
    make.add_argument("--out", type=Path, default=Path("data/pusht"))
    test = commands.add_parser("score", help="ask trust, then play seeded episodes")
    test.add_argument("runs", type=Path, nargs="+")
    test.add_argument("--episodes", type=int, default=50)
    test.add_argument("--seed", type=int, default=10_000_000, help="of the first episode")
    test.add_argument("--checkpoint", default="final", help="final, or best on held-out episodes")
    test.add_argument("--json", type=Path)
    given = parser.parse_args()
    if given.command == "score":
        found = []
        for run in given.runs:
            found.append(score(run, given.episodes, given.seed, given.checkpoint))
            print(show(found[-1]), flush=True)
        if given.json:
            given.json.write_text(json.dumps(found, indent=1))
        return
    data = prepare(given.log)
    last = data.starts[1:] - 1
    away = np.linalg.norm((data.achieved_goals[last] - data.desired_goals)[:, :2], axis=1)
    print(f"{save(data, given.out)}: {len(data)} episodes; the T ends {np.median(away):.1f} pixels")
    print(f"from its target in the median episode, at most {np.quantile(away, 0.95):.1f} in 95 %")


if __name__ == "__main__":
    main()
