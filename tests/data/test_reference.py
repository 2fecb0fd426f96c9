"""Random play and experts' data against statistics of the benchmark's published data.

The published figures: mean discounted return over the 49 recorded states of 2,000 episodes, and
the share of episodes that are at their goal at some of those states.
"""

import json
import math
from pathlib import Path

import numpy as np
import pytest

import merlin
from merlin.data.describe import reached

REFERENCE = json.loads((Path(__file__).parents[1] / "data" / "wgcsl_reference.json").read_text())
QUICK = ("PointReach", "PointRooms")
EXPERTS = ("Reacher", "SawyerReach", "SawyerDoor", "FetchReach")


def curves(name, variant="random", episodes=2000):
    """At-goal flags of collected episodes, (episodes, states)."""
    data = merlin.collect(name, variant, episodes=episodes, seed=0)
    return reached(data, merlin.TASKS[name].tolerance).reshape(episodes, 50)[:, :49]


def compare(name, at_goal):
    """Ours, theirs and the difference in combined standard errors, for return and curve."""
    theirs = REFERENCE[name]["random"]
    count = theirs["trajectories"]
    returns = at_goal @ 0.98 ** np.arange(49)
    error = math.hypot(
        returns.std() / math.sqrt(len(returns)), theirs["std_discounted_return"] / math.sqrt(count)
    )
    wanted = theirs["mean_discounted_return"]
    rows = {"return": (returns.mean(), wanted, (returns.mean() - wanted) / error)}
    for state, share in theirs["success_curve"].items():
        ours = at_goal[:, int(state)].mean()
        error = math.sqrt(ours * (1 - ours) / len(at_goal) + share * (1 - share) / count)
        rows[state] = (ours, share, (ours - share) / error if error else 0.0)
    print(f"\n{name}: ours, published, difference in standard errors")
    for key, (ours, share, z) in rows.items():
        print(f"  {key:>6} {ours:8.4f} {share:8.4f} {z:+6.2f}")
    return rows


@pytest.mark.parametrize(
    "name",
    [
        name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)
        for name in ("PointReach", "PointRooms", "Reacher", "SawyerReach", "FetchReach")
    ],
)
def test_random_play_agrees_with_the_published_data(name):
    rows = compare(name, curves(name))
    assert {key: z for key, (_, _, z) in rows.items() if abs(z) > 3} == {}


@pytest.mark.parametrize(
    "name", [*QUICK, *(pytest.param(n, marks=pytest.mark.more) for n in EXPERTS)]
)
def test_expert_data_is_worth_what_the_published_is(name):
    """Within 10 % of the mean return, whose standard error here is about 2 %."""
    at_goal = curves(name, "expert", 2000 if name in QUICK else 200)
    ours = np.mean(at_goal @ 0.98 ** np.arange(49))
    assert ours == pytest.approx(REFERENCE[name]["expert"]["mean_discounted_return"], rel=0.1)


@pytest.mark.slow
def test_the_rebuilt_door_plays_much_like_the_published_one():
    """The scene is ours, so the bar is wider: 25 % of the return, 0.03 of success at the end."""
    rows = compare("SawyerDoor", curves("SawyerDoor"))
    ours, theirs, _ = rows["return"]
    assert abs(ours - theirs) <= 0.25 * theirs
    assert abs(rows["48"][0] - rows["48"][1]) <= 0.03
