"""Merlin-map: what its policy heads for, kept in runs that are stopped and in policy files."""

import dataclasses
import shutil

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import merlin
import merlin.runtime
from helpers.corridor import CELLS, corridor
from helpers.learner_data import fresh
from helpers.onnx_sessions import session
from merlin.data import Dataset, Episode
from merlin.deploy import export
from merlin.errors import MerlinError
from merlin.io import tensors
from merlin.learners import MerlinMap
from merlin.policies.mixture import log_density
from merlin.training.plan import method_for
from merlin.types import DrawnGoals

LEARNER = MerlinMap(
    places=30,
    lags=(1,),
    temperature=0.0,
    hindsight_ratio=1.0,
    hidden=(32, 32),
    batch_size=128,
    learning_rate=3e-3,
)
pytestmark = pytest.mark.usefixtures("small_hazard")
STATES = np.column_stack([np.full(len(CELLS), 7.0), CELLS]).astype(np.float32)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "corridor"
    return merlin.train(LEARNER, corridor(), out=out, updates=500)


def test_goes_around_the_wall(run):
    """The goal is one step up; the way there is along the corridor, to its end and back."""
    state, path = STATES[0].copy(), []
    act = eqx.filter_jit(run.policy.act)
    for _ in range(40):
        state[1:] += np.asarray(act(state, CELLS[-1]))
        path.append(state[1:].copy())
    assert np.max(path, axis=0)[0] > 8.0
    assert np.linalg.norm(np.array(path) - CELLS[-1], axis=1).min() < 0.5


@pytest.fixture(scope="module")
def one_way():
    return merlin.train(LEARNER, corridor(both_ways=False, repeats=10), updates=1).policy


def test_says_what_it_can_reach(run, one_way):
    fast = merlin.runtime.load(run.folder)
    for policy in (run.policy, fast):
        assert policy.reach(STATES[0], CELLS[-1])[:2] == (True, len(CELLS) - 1)
        np.testing.assert_array_equal(policy.reach(STATES[:3], CELLS[3]).steps, [3, 2, 1])
        with pytest.raises(MerlinError, match="goal: is nan"):
            policy.reach(STATES[0], [np.nan, 0])
    assert one_way.reach(STATES[-3], CELLS[5])[:2] == (False, -1)


def test_is_confident_of_goals_in_the_data_only(run, one_way, rng):
    """Outside there is no data; and where everybody went one way, nobody came back."""
    fast = merlin.runtime.load(run.folder)
    along, outside = run.policy.reach(STATES[:-3], CELLS[3:]), CELLS + np.float32([0.0, 40.0])
    assert along.confidence.mean() > 0.8
    assert run.policy.reach(STATES, outside).confidence.max() < 0.01
    assert run.policy.reach(STATES - [0, 0, 40], CELLS).confidence.max() < 0.01
    back = one_way.reach(STATES[3:], CELLS[:-3])
    assert one_way.reach(STATES[:-3], CELLS[3:]).confidence.mean() > 0.8
    assert back.confidence.mean() < 0.2
    states = STATES[rng.integers(len(CELLS), size=40)] + rng.normal(0, 0.3, (40, 3))
    goals = CELLS[rng.integers(len(CELLS), size=40)] + rng.normal(0, 0.5, (40, 2))
    for rows in (states, states[0]):
        wanted, found = run.policy.reach(rows, goals), fast.reach(rows, goals)
        for one, same in zip(wanted, found, strict=True):
            np.testing.assert_allclose(same, one, atol=1e-5)


def test_acts_the_same_from_its_file_in_numpy_and_in_onnx(run, rng):
    kept, fast = merlin.load_run(run.folder).policy, merlin.runtime.load(run.folder)
    weights = merlin.runtime.read(run.folder / "seed-0" / "policy.safetensors")
    content = export.build(weights)
    assert export.verify(content, weights, kept) < 1e-4
    states = STATES[rng.integers(len(CELLS), size=50)] + rng.normal(0, 0.3, (50, 3))
    goals = CELLS[rng.integers(len(CELLS), size=50)] + rng.normal(0, 0.3, (50, 2))
    states, goals = states.astype(np.float32), goals.astype(np.float32)
    act = jax.jit(lambda policy, *told: jax.vmap(policy.act, (0, 0, None))(states, goals, *told))
    wanted = np.asarray(act(run.policy, None))
    np.testing.assert_array_equal(act(kept, None), wanted)
    np.testing.assert_allclose(fast(states, goals), wanted, atol=1e-5)
    rows = {"observation": states, "goal": goals}
    np.testing.assert_allclose(session(content).run(None, rows)[0], wanted, atol=1e-5)
    soon = np.asarray(act(run.policy, 6.0))
    np.testing.assert_allclose(fast(states, goals, 6), soon, atol=1e-5)
    assert np.abs(soon - wanted).max() > 1e-2
    with pytest.raises(MerlinError, match="goal: is nan"):
        fast(states[0], np.full(2, np.nan, np.float32))


@pytest.mark.parametrize("space", ["kinetic", "coordinates"])
def test_whole_states_as_goals(space, tmp_path, rng):
    """The first number of a state is noise, which only coordinates mind.

    A horizon of one step makes the corridors long.
    """
    data, noise = corridor(), lambda n: rng.normal(0, 20, n).astype(np.float32)
    states = np.asarray(data.observations).copy()
    states[:, 0] = noise(len(states))
    data = dataclasses.replace(data, observations=states, achieved_goals=states)
    learner = dataclasses.replace(LEARNER, space=space, max_horizon=1)
    run = merlin.train(learner, data, updates=1, out=tmp_path / "run")
    goals = np.column_stack([noise(len(CELLS)), CELLS])
    at = np.asarray(run.policy.map.centres)[run.policy.place(jnp.asarray(goals))]
    away = np.linalg.norm(at[:, 1:] - CELLS, axis=1)
    assert (away.mean() < 0.5) == (space == "kinetic")
    assert learner.distances(2) == learner.distances(4) == space
    usual = MerlinMap()
    assert (usual.distances(3), usual.distances(4)) == ("coordinates", "kinetic")
    wanted = jax.jit(jax.vmap(run.policy.act))(states[:50], states[::-1][:50])
    fast = merlin.runtime.load(tmp_path / "run")
    np.testing.assert_allclose(fast(states[:50], states[::-1][:50]), wanted, atol=1e-5)
    content = export.build(fast.weights)
    assert export.verify(content, fast.weights, run.policy) < 1e-4


def test_a_policy_of_an_earlier_version_has_no_projection(run, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(run.folder, folder)
    path = folder / "seed-0" / "policy.safetensors"
    arrays, about = tensors.read(path)
    del arrays["map.projection"], about["settings"]["space"]
    tensors.write(path, arrays, about)
    for policy in (merlin.load_run(folder).policy, merlin.runtime.load(folder)):
        assert policy.reach(STATES[0], CELLS[-1])[:2] == (True, len(CELLS) - 1)
        np.testing.assert_allclose(
            policy(STATES, CELLS[-1]), run.policy(STATES, CELLS[-1]), atol=1e-5
        )


def test_acts_with_noise_in_jax_and_in_numpy(tmp_path):
    learner = dataclasses.replace(LEARNER, temperature=0.5)
    run = merlin.train(learner, corridor(), out=tmp_path / "run", updates=1)
    state, goal, fast = STATES[5], CELLS[-1], merlin.runtime.load(tmp_path / "run")
    keys = jax.random.split(jax.random.key(0), 2000)
    drawn = np.asarray(jax.jit(jax.vmap(lambda key: run.policy.act(state, goal, key=key)))(keys))
    found = np.stack([fast(state, goal) for _ in range(2000)])
    np.testing.assert_allclose(found.mean(0), drawn.mean(0), atol=0.05)
    np.testing.assert_allclose(found.std(0), drawn.std(0), rtol=0.1)
    assert drawn.std() > 0.05
    calm = run.policy.with_temperature(0.0)
    np.testing.assert_array_equal(run.policy(state, goal), calm(state, goal))


def test_a_resumed_run_is_the_same(run, tmp_path):
    merlin.train(LEARNER, corridor(), out=tmp_path / "run", updates=100)
    merlin.train(LEARNER, corridor(), out=tmp_path / "run", updates=500, resume=True)
    file = "seed-0/policy.safetensors"
    assert (tmp_path / "run" / file).read_bytes() == (run.folder / file).read_bytes()


def test_episodes_say_how_long_a_passage_is():
    rng = np.random.default_rng(0)
    for steps, lags in ((50, (1, 2, 3)), (200, (4, 8, 12))):
        walk = rng.normal(size=(steps + 1, 2))
        data = Dataset.from_episodes([Episode(walk, np.zeros((steps, 1)), walk)])
        assert method_for("merlin-map", data, None).learner == MerlinMap(lags=lags)


def test_data_whose_goals_are_no_part_of_its_states_is_refused(tmp_path):
    rng = np.random.default_rng(0)
    episode = Episode(rng.normal(size=(9, 3)), np.zeros((8, 1)), rng.normal(size=(9, 2)))
    with pytest.raises(MerlinError, match="phi: the achieved goals are not columns of the states"):
        merlin.train(LEARNER, Dataset.from_episodes([episode]), updates=1, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("settings", "fragment"),
    [
        ({"places": 0}, "places: 0"),
        ({"places": 20_000}, "places: 20000 are too many"),
        ({"space": "latent"}, "space: 'latent' is not auto, kinetic or coordinates"),
        ({"lags": ()}, "lags: "),
        ({"lags": (0, 3)}, "lags: "),
        ({"hops": 0}, "hops: 0"),
        ({"components": 0}, "components: 0"),
    ],
)
def test_impossible_settings_are_refused(settings, fragment):
    with pytest.raises(MerlinError, match=fragment):
        MerlinMap(**settings)


def test_only_some_hindsight_goals_keep_their_horizon():
    learner = dataclasses.replace(LEARNER, hindsight_ratio=0.5, horizon_dropout=0.25)
    policy = fresh(learner).policy
    n = 4000
    goals = DrawnGoals(
        goal=jnp.zeros((n, 2)),
        observation=jnp.zeros((n, 3)),
        horizon=jnp.full(n, 3.0),
        reached=jnp.zeros(n, bool),
        relabelled=jnp.arange(n) < n // 2,
    )
    embedded = np.asarray(learner.horizons(policy, goals, jax.random.key(0)))
    told = np.asarray(policy.embed(3.0))
    kept = (embedded == told).all(axis=1)
    assert not embedded[~kept].any()
    assert not kept[n // 2 :].any()
    assert kept[: n // 2].mean() == pytest.approx(0.75, abs=0.03)


def test_weights_by_hand():
    """Advantages of log 2 and log 1/2, one and two steps before the goal, and a capped one."""
    learner = dataclasses.replace(LEARNER, discount=0.5, max_weight=4.0, batch_size=3)
    goals = DrawnGoals(
        goal=jnp.zeros((3, 2)),
        observation=jnp.zeros((3, 3)),
        horizon=jnp.array([1.0, 2.0, 1.0]),
        reached=jnp.zeros(3, bool),
        relabelled=jnp.ones(3, bool),
    )
    advantage = jnp.log(jnp.array([2.0, 0.5, 100.0]))
    state = fresh(learner)
    weight, queue, _ = learner.weigh(state, goals, advantage)
    raw = np.array([2.0, 0.5 * 0.5, 4.0])
    np.testing.assert_allclose(weight, raw / raw.mean(), rtol=1e-5)
    np.testing.assert_array_equal(queue[0], advantage)
    assert np.isinf(queue[1:]).all()
    late = dataclasses.replace(state, updates=jnp.int32(10**6))
    ranked = dataclasses.replace(learner, best_percentile=50.0)
    weight, _, threshold = ranked.weigh(late, goals, advantage)
    assert np.log(0.5) < threshold <= np.log(2.0)
    raw *= [1.0, 0.05, 1.0]
    np.testing.assert_allclose(weight, raw / raw.mean(), rtol=1e-5)


def test_the_critic_chooses_and_the_density_holds_it_back():
    """A critic that likes large actions takes the doubled one, unless its error is large."""
    policy = fresh(dataclasses.replace(LEARNER, caution=1.0)).policy
    # The first unit of every layer passes on the sum of the action, which is above -10.
    rigged = jax.tree.map(jnp.zeros_like, policy.critic)
    first, second, last = (layer.weight for layer in rigged.layers)
    parts = lambda net: [  # noqa: E731
        *(layer.weight for layer in net.layers),
        net.layers[0].bias,
    ]
    sums = [first.at[-2:, 0].set(1.0), second.at[0, 0].set(1.0), last.at[0, 0].set(100.0)]
    rigged = eqx.tree_at(parts, rigged, [*sums, rigged.layers[0].bias.at[0].set(10.0)])
    state, goal = jnp.array([0.3, -0.2]), jnp.array([1.0, 0.5])
    mixture, actions = policy.proposals(state, goal)
    assert len(actions) == 3
    centre = policy.action_centre
    doubled = policy.clip(centre + 2 * (actions[1] - centre))
    np.testing.assert_allclose(actions[2], doubled, atol=1e-6)
    greedy = dataclasses.replace(policy, critic=rigged, square_error=jnp.float32(0.0))
    sums = np.asarray(policy.in_units(actions).sum(axis=1))
    np.testing.assert_array_equal(greedy.act(state, goal), actions[sums.argmax()])
    wary = dataclasses.replace(greedy, square_error=jnp.float32(1e9))
    likely = [float(log_density(mixture, action, policy.action_scale)) for action in actions]
    assert np.argmax(likely) != sums.argmax()
    np.testing.assert_array_equal(wary.act(state, goal), actions[np.argmax(likely)])
