"""The page of a policy with a map: places, passages, and the way that it would take."""

import json

import jax.numpy as jnp
import numpy as np
import pytest

import merlin
from helpers.browsers import open_in
from helpers.sizes import SCHEDULE
from merlin.deploy.play import write_page
from merlin.learners import MerlinMap, distance


@pytest.fixture(scope="module")
def run(tmp_path_factory, point_data):
    folder = tmp_path_factory.mktemp("mapped") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distance, "PAIRS", 2000)  # the page does not show the hazard model
        learner = MerlinMap(places=40, passages=1, hidden=(16, 16), batch_size=64)
        merlin.train(learner, point_data, updates=1, out=folder, **SCHEDULE)
    return folder


@pytest.fixture(scope="module")
def page(run, tmp_path_factory):
    out = tmp_path_factory.mktemp("page") / "map.html"
    write_page([run], out, episodes=3)
    return out


def carried(page):
    text = page.read_text()
    begin = text.index('{"policies"')
    return json.JSONDecoder().raw_decode(text[begin:])[0]["policies"][0]["recorded"]


def test_the_page_has_the_places_and_passages_of_the_policy(run, page):
    found = carried(page)
    policy = merlin.load_run(run).policy
    map = policy.map
    (view,) = found["views"]
    np.testing.assert_allclose(view["places"], map.centres, atol=1e-3)
    edges = {tuple(edge) for edge in found["map"]["edges"]}
    joined = np.asarray(map.steps) == 1
    assert edges == {(min(i, j), max(i, j)) for i, j in np.argwhere(joined).tolist()}
    for e, goal in enumerate(view["goals"]):
        there = policy.place(jnp.array(goal[0]))
        assert found["map"]["next"][e] == map.ahead[:, there].tolist()
        states = jnp.array(view["paths"][e][0])
        assert found["map"]["at"][e] == policy.place(states).tolist()


def test_the_way_leads_from_place_to_place_to_the_goal(browser, page):
    found, browser = carried(page), open_in(browser, page.as_uri())
    for episode in range(3):
        browser.execute_script("merlin.replay.setEpisode(arguments[0])", episode)
        way = browser.execute_script("return merlin.replay.waypoints()")
        here, next = found["map"]["at"][episode][0], found["map"]["next"][episode]
        expected = []
        while next[here] >= 0:
            here = next[here]
            expected.append(here)
        assert way == expected
    assert browser.get_log("browser") == []
