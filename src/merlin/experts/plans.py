"""How the shipped experts were trained: one plan per task."""

from dataclasses import dataclass, field, replace
from typing import Any

from merlin.errors import MerlinError
from merlin.experts.ddpg import DDPG

ALONE_RATE = 0.3
"""Of the learning rate, once an actor clones nobody."""


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
    advised: bool = False  # the controller says what it would do in every state that is visited
    alone_from: int | None = None  # the cycle from which the actor clones nobody
    fine_tuning: int = 0  # updates at the end, on the advice alone, with ever smaller steps
    eval_every: int = 10
    eval_episodes: int = 100
    published: float | None = None  # mean return of the published data, where it is known
    helped_by: tuple[str, ...] = field(default=())  # beyond plain DDPG+HER, for the card

    def __post_init__(self) -> None:
        if self.cycles < 1:
            raise MerlinError(f"cycles: {self.cycles} is not 1 or more.")

    def learner_at(self, cycle: int) -> DDPG:
        """Who learns in a cycle. What cloning taught is kept, but it also holds an actor back to
        the pace of the controller: in the end it goes its own way, with smaller steps."""
        if self.alone_from is None or cycle < self.alone_from:
            return self.learner
        rate = ALONE_RATE * self.learner.learning_rate
        return replace(self.learner, cloning_weight=0.0, action_penalty=0.0, learning_rate=rate)


def _demonstrated(
    controller: str,
    *,
    cycles: int,
    tolerance: float,
    demonstrations: int = 300,
    action_penalty: float = 1.0,
    **other: Any,
) -> Plan:
    """A plan for a task where noise alone seldom meets the goal."""
    return Plan(
        cycles=cycles,
        learner=DDPG(tolerance=tolerance, action_penalty=action_penalty, cloning_weight=100.0),
        controller=controller,
        demonstrations=demonstrations,
        helped_by=("demonstrations of a scripted controller", "cloning loss with a Q-filter"),
        **other,
    )


PLANS: dict[str, Plan] = {
    # A larger penalty makes an expert as slow as the one whose data was published.
    "PointReach": Plan(
        cycles=60, episodes=100, learner=DDPG(tolerance=1.0, action_penalty=1.3), published=18.57
    ),
    "PointRooms": Plan(
        cycles=200, episodes=100, learner=DDPG(tolerance=1.0, action_penalty=1.5), published=16.65
    ),
    "Reacher": Plan(cycles=200, learner=DDPG(tolerance=0.05, action_penalty=2.5), published=15.08),
    "SawyerReach": Plan(
        cycles=100, learner=DDPG(tolerance=0.06, action_penalty=2.0), published=16.56
    ),
    # Learned with the tolerance of the success, which is a third of the return's.
    "SawyerDoor": _demonstrated(
        "sawyer_door", cycles=100, tolerance=0.02, action_penalty=4.0, published=15.05
    ),
    "FetchReach": Plan(cycles=60, learner=DDPG(tolerance=0.05, action_penalty=2.5), published=21.6),
    "FetchPush": _demonstrated(
        "fetch_push", cycles=130, updates=160, alone_from=60, tolerance=0.05
    ),
    "FetchPick": _demonstrated(
        "fetch_pick", cycles=150, updates=160, alone_from=60, tolerance=0.05
    ),
    # One strike decides, and it takes millimetres: the actor is advised wherever it goes.
    "FetchSlide": Plan(
        cycles=150,
        learner=DDPG(tolerance=0.05, batch_size=128, action_penalty=0.0, cloning_weight=1000.0),
        episodes=32,
        updates=100,
        noise=0.05,
        uniform=0.02,
        controller="fetch_slide",
        demonstrations=300,
        demonstration_noise=(0.05, 0.05),
        advised=True,
        fine_tuning=40_000,
        eval_every=50,
        helped_by=(
            "advice of a scripted controller in every state that is visited",
            "at the end the actor learns from the advice alone, with ever smaller steps",
        ),
    ),
    # Twenty joints must stand within a tight tolerance together: little noise, and no
    # pull towards the middle of every joint's range.
    "HandReach": _demonstrated(
        "hand_reach",
        cycles=320,
        tolerance=0.01,
        demonstrations=1000,
        demonstration_noise=(0.02, 0.0),
        action_penalty=0.1,
        noise=0.05,
        uniform=0.1,
    ),
}
