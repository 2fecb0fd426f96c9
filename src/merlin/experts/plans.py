"""Training plans of the experts, one per task."""

from dataclasses import dataclass, field, replace
from typing import Any

from merlin.errors import MerlinError
from merlin.experts.ddpg import DDPG

ALONE_RATE = 0.3
"""Factor on the learning rate once cloning has ended."""


@dataclass(frozen=True)
class Plan:
    """Cycles of playing and learning.

    Each cycle plays noisy episodes, then makes updates. Target networks are updated after every
    update: with the usual 5 % per cycle, values need many cycles to propagate along an episode.
    """

    cycles: int
    learner: DDPG
    episodes: int = 16  # per cycle
    updates: int = 40  # per cycle
    keep: float = 0.995  # Polyak factor of the target networks, per update (1 - tau)
    noise: float = 0.2
    uniform: float = 0.3
    controller: str | None = None  # scripted controller that gives demonstrations
    demonstrations: int = 0
    demonstration_noise: tuple[float, float] = (0.1, 0.1)  # Gaussian, uniform
    advised: bool = False  # label every visited state with the controller's action
    alone_from: int | None = None  # the cycle in which cloning ends
    fine_tuning: int = 0  # updates at the end, on the advice alone, with a decaying rate
    eval_every: int = 10
    eval_episodes: int = 100
    published: float | None = None  # mean return of the published data, if known
    helped_by: tuple[str, ...] = field(default=())  # beyond plain DDPG+HER, for the card

    def __post_init__(self) -> None:
        if self.cycles < 1:
            raise MerlinError(f"cycles: {self.cycles} is below 1; give 1 or more.")

    def learner_at(self, cycle: int) -> DDPG:
        """The learner of a cycle.

        Cloning limits an actor to the pace of the controller, so it ends after some cycles. The
        actor then trains without it, with a lower learning rate.
        """
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
    """A plan with demonstrations, for tasks where exploration rarely reaches the goal."""
    return Plan(
        cycles=cycles,
        learner=DDPG(tolerance=tolerance, action_penalty=action_penalty, cloning_weight=100.0),
        controller=controller,
        demonstrations=demonstrations,
        helped_by=("demonstrations of a scripted controller", "cloning loss with a Q-filter"),
        **other,
    )


PLANS: dict[str, Plan] = {
    # A larger penalty makes the expert as slow as the one behind the published data.
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
    # Trained with the tolerance of success, which is a third of that of the return.
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
    # A single precise strike decides the episode, so the actor gets advice in every state.
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
    # Twenty joints must be within a tight tolerance together: little noise, and only a small
    # penalty that pulls joints towards the middle of their range.
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
