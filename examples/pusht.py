"""Push-T: human demonstrations as a dataset whose goal is the pose of the T.

    python examples/pusht.py logs/pusht --out data/pusht
    merlin info data/pusht
    merlin train data/pusht --algo merlin-plus --out runs/pusht

`logs/pusht` is Diffusion Policy's replay buffer, whose state is the position of the pusher, the
position of the T and its angle. The angle wraps around at 2 pi, where two poses that are next to
each other would be far apart; its cosine and sine take its place. They are scaled by ARM so that
a distance between two poses weighs turning as much as moving.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np

import merlin
from merlin.data import Dataset, save
from merlin.data.dataset import LOG, validate

TARGET = np.array([256.0, 256.0, np.pi / 4])
"""Where the T belongs in every episode: its position in pixels and its angle."""
ARM = 60.0
"""Pixels by which a turn of one radian moves the ends of the T, about."""
NAMES = ["pusher x", "pusher y", "T x", "T y", "T cos", "T sin"]


def pose(position: np.ndarray, angle: np.ndarray) -> np.ndarray:
    """A pose of the T as a goal: position, and the direction of its angle in pixels."""
    turned = ARM * np.stack([np.cos(angle), np.sin(angle)], -1)
    return np.concatenate([position, turned], -1).astype(np.float32)


def observation(state: np.ndarray) -> np.ndarray:
    """What the policy sees of states of pusher x, y, T x, y and angle."""
    return np.concatenate([state[..., :2], pose(state[..., 2:4], state[..., 4])], -1).astype(
        np.float32
    )


def prepare(log: str | Path) -> Dataset:
    """The recording with poses as goals; every episode was meant to reach the target."""
    data = merlin.load(log)
    seen = observation(np.asarray(data.observations))
    about = {"rate": 10.0, "units": "pixels", "actions": "absolute", "state_names": NAMES}
    changed = replace(
        data,
        observations=seen,
        achieved_goals=seen[:, 2:],
        desired_goals=np.tile(pose(TARGET[:2], TARGET[2]), (len(data), 1)),
        phi=(2, 3, 4, 5),
        provenance={**data.provenance, LOG: {**data.provenance[LOG], **about}},
        source=None,
    )
    return validate(changed, str(log), one_file=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("log", type=Path)
    parser.add_argument("--out", type=Path, default=Path("data/pusht"))
    given = parser.parse_args()
    data = prepare(given.log)
    last = data.starts[1:] - 1
    away = np.linalg.norm((data.achieved_goals[last] - data.desired_goals)[:, :2], axis=1)
    print(f"{save(data, given.out)}: {len(data)} episodes; the T ends {np.median(away):.1f} pixels")
    print(f"from its target in the median episode, at most {np.quantile(away, 0.95):.1f} in 95 %")


if __name__ == "__main__":
    main()
