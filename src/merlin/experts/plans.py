"""How the shipped experts were trained: one plan per task."""

from dataclasses import dataclass, field

from merlin.experts.ddpg import DDPG


@dataclass(frozen=True)
class Plan:
    """Cycles of playing and learning.

    Each cycle plays some noisy episodes, then makes updates. Target networks move with every
    update: with the usual 5 % per cycle, values take many cycles to spread along an episode.
    """

    cycles: int
    learner: DDPG
    episodes: int = 16  # per cycle
    updates: int = 40  # per cycle
    keep: float = 0.995  # of the target networks, per update
    noise: float = 0.2
    uniform: float = 0.3
    controller: str | None = None  # whose demonstrations are learned from, too
    demonstrations: int = 0
    demonstration_noise: tuple[float, float] = (0.1, 0.1)  # Gaussian, uniform
    eval_every: int = 10
    eval_episodes: int = 100
    helped_by: tuple[str, ...] = field(default=())  # beyond plain DDPG+HER, for the card


_DEMONSTRATED = ("demonstrations of a scripted controller", "cloning loss with a Q-filter")

PLANS: dict[str, Plan] = {
    "PointReach": Plan(cycles=60, episodes=100, learner=DDPG(tolerance=1.0, batch_size=256)),
    "PointRooms": Plan(cycles=300, episodes=100, learner=DDPG(tolerance=1.0, batch_size=256)),
    "Reacher": Plan(cycles=300, learner=DDPG(tolerance=0.05, batch_size=256)),
    "SawyerReach": Plan(cycles=100, learner=DDPG(tolerance=0.06, batch_size=256)),
    "SawyerDoor": Plan(
        cycles=150,
        learner=DDPG(tolerance=0.02, batch_size=256, cloning_weight=100.0),
        controller="sawyer_door",
        demonstrations=200,
        helped_by=_DEMONSTRATED,
    ),
    "FetchReach": Plan(cycles=100, learner=DDPG(tolerance=0.05, batch_size=256)),
    "FetchPush": Plan(
        cycles=500,
        learner=DDPG(tolerance=0.05, demonstration_batch=256, cloning_weight=100.0),
        controller="fetch_push",
        demonstrations=1000,
        helped_by=_DEMONSTRATED,
    ),
    "FetchPick": Plan(
        cycles=500,
        learner=DDPG(tolerance=0.05, demonstration_batch=256, cloning_weight=100.0),
        controller="fetch_pick",
        demonstrations=1000,
        helped_by=_DEMONSTRATED,
    ),
    "FetchSlide": Plan(
        cycles=1000,
        learner=DDPG(tolerance=0.05, demonstration_batch=256, cloning_weight=100.0),
        controller="fetch_slide",
        demonstrations=1000,
        helped_by=_DEMONSTRATED,
    ),
    "HandReach": Plan(
        cycles=500,
        learner=DDPG(tolerance=0.01, demonstration_batch=256, cloning_weight=100.0),
        controller="hand_reach",
        demonstrations=1000,
        demonstration_noise=(0.02, 0.0),
        helped_by=_DEMONSTRATED,
    ),
}
