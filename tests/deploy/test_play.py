"""The playground page, driven in a real browser."""

import itertools

import jax
import numpy as np
import pytest

import merlin
from helpers.browsers import open_in, requests
from helpers.policy_files import write_run
from helpers.sizes import SCHEDULE, SMALL
from merlin.deploy.play import write_page
from merlin.envs.point import OPEN, ROOMS
from merlin.learners import GCSL, Merlin
from merlin.training.runs import load_policy


@pytest.fixture(scope="module")
def runs(tmp_path_factory, point_data):
    """One run that walks well; and untrained, without a horizon, recorded, without a spread."""
    folder = tmp_path_factory.mktemp("played")
    # The learner and the schedule of `run_folder`, but for its length: nothing is compiled anew.
    schedule = SCHEDULE | {"eval_every": 10_000, "checkpoint_every": 10_000, "log_every": 10_000}
    merlin.train(Merlin(**SMALL), point_data, updates=2000, out=folder / "reach", **schedule)
    rng, rooms = np.random.default_rng(0), merlin.TASKS["PointRooms"]
    write_run(folder / "rooms", rooms, Merlin(hidden=(32, 32), horizon=None), rng)
    write_run(folder / "Fetch<b>", merlin.TASKS["FetchReach"], Merlin(hidden=(32, 32)), rng)
    write_run(folder / "gcsl", rooms, GCSL(hidden=(32, 32)), rng)
    return [folder / name for name in ("reach", "rooms", "Fetch<b>", "gcsl")]


@pytest.fixture(scope="module")
def file(runs, tmp_path_factory):
    out = tmp_path_factory.mktemp("page") / "page.html"
    write_page(runs, out, episodes=5)
    return out


@pytest.fixture
def page(browser, file):
    """The page opened anew; afterwards it must not have complained or fetched anything."""

    def open_page(**window):
        return open_in(browser, file.as_uri(), **window)

    yield open_page
    assert browser.get_log("browser") == []
    assert requests(browser) <= {file.as_uri(), "about:blank"}


def run(browser, script, *arguments):
    return browser.execute_script(script, *arguments)


def after_frames(browser, script="return true", frames=3):
    """The value of a script after the page has drawn."""
    wait = "(f, n) => n ? requestAnimationFrame(() => this_(f, n - 1)) : f()"
    text = (
        f"const done = arguments[arguments.length - 1]; const this_ = {wait};"
        f"this_(() => done((() => {{ {script} }})()), {frames});"
    )
    return browser.execute_async_script(text)


def state(browser):
    return run(browser, "return merlin.state()")


def wait_for(browser, condition, seconds=30):
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(browser, seconds, 0.05).until(lambda b: run(b, f"return {condition}"))


def mouse(browser, kind, x, y, buttons=1, **more):
    """A mouse event of the browser itself, in page coordinates."""
    browser.execute_cdp_cmd(
        "Input.dispatchMouseEvent",
        {
            "type": kind,
            "x": x,
            "y": y,
            "button": "left",
            "buttons": buttons,
            "clickCount": 1,
            **more,
        },
    )


def at(browser, point):
    """Where on the screen a place of the arena is."""
    return run(
        browser,
        "const box = document.getElementById('canvas').getBoundingClientRect();"
        "const [x, y] = merlin.live.scale().toScreen(arguments[0]);"
        "return [box.left + x, box.top + y];",
        point,
    )


def click(browser, point, **more):
    x, y = at(browser, point)
    mouse(browser, "mousePressed", x, y, **more)
    mouse(browser, "mouseReleased", x, y, buttons=0)


def press(browser, key):
    from selenium.webdriver.common.action_chains import ActionChains

    ActionChains(browser).send_keys(key).perform()


def test_the_page_is_small_and_says_what_it_shows(page, file):
    assert file.stat().st_size < 3_000_000
    browser = page()
    assert run(browser, "return document.title") == "PointReach, PointRooms, FetchReach, merlin"
    names = run(browser, "return merlin.policies.map(p => p.name)")
    assert names == ["reach", "rooms", "Fetch<b>", "gcsl"]
    assert "Fetch<b>" in run(browser, "return document.getElementById('policies').innerText")


@pytest.mark.parametrize("index", [0, 1, 3])
def test_the_browser_acts_as_python_does(page, runs, index, rng):
    browser = page()
    policy = load_policy(runs[index] / "seed-0" / "policy.safetensors")
    places = rng.uniform(-7, 7, (200, 4)).astype(np.float32)
    horizons = rng.integers(1, 51, 200).astype(np.float32)
    rows = [[*map(float, place), float(h)] for place, h in zip(places, horizons, strict=True)]
    answers = run(
        browser,
        "merlin.select(arguments[1]);"
        "return arguments[0].map(([x, y, gx, gy, h]) => merlin.act([x, y], [gx, gy], h));",
        rows,
        index,
    )
    means, stds = ([answer[kind] for answer in answers] for kind in ("mean", "std"))
    if hasattr(policy, "distribution"):
        mean, std = jax.jit(jax.vmap(policy.distribution))(places[:, :2], places[:, 2:], horizons)
        np.testing.assert_allclose(stds, std, atol=1e-4)
    else:
        mean = jax.jit(jax.vmap(policy))(places[:, :2], places[:, 2:])
        assert stds == [None] * len(rows)
        assert "deviation" not in run(browser, "return document.getElementById('about').innerText")
    np.testing.assert_allclose(means, mean, atol=1e-4)


@pytest.mark.parametrize(("index", "arena"), [(0, OPEN), (1, ROOMS)])
def test_the_browser_moves_as_the_task_does(page, index, arena, rng):
    browser = page()
    positions = arena.sample_free_each([rng] * 3000)
    # Many of them close to walls and corners, where the rule has its cases.
    near = rng.uniform(-2.0, 2.0, (3000, 2))
    positions = np.concatenate([positions, near[arena.is_free(near)]])
    actions = rng.uniform(-1.3, 1.3, positions.shape)
    actions[::7, 0] = 0.0
    moved = run(
        browser,
        "merlin.select(arguments[2]);"
        "return arguments[0].map((position, i) => merlin.move(position, arguments[1][i]));",
        positions.tolist(),
        actions.tolist(),
        index,
    )
    np.testing.assert_array_equal(moved, arena.move(positions, actions))


def test_a_click_places_the_goal_and_the_agent_arrives(page):
    browser = page(motion="no-preference")
    click(browser, [-2.0, 3.5])
    now = state(browser)
    np.testing.assert_allclose(now["goal"], [-2.0, 3.5], atol=0.05)
    assert now["playing"]
    wait_for(browser, "document.getElementById('status').classList.contains('good')")
    assert np.hypot(*np.subtract(state(browser)["agent"], [-2.0, 3.5])) <= 1.05
    # A new goal, and it walks on.
    click(browser, [4.0, -4.0])
    wait_for(
        browser, "Math.hypot(merlin.state().agent[0] - 4, merlin.state().agent[1] + 4) <= 1.05"
    )


def test_dragging_moves_what_was_grabbed(page):
    browser = page()
    x, y = at(browser, state(browser)["agent"])
    to = at(browser, [1.0, -1.0])
    mouse(browser, "mousePressed", x, y)
    mouse(browser, "mouseMoved", *to)
    mouse(browser, "mouseReleased", *to, buttons=0)
    np.testing.assert_allclose(state(browser)["agent"], [1.0, -1.0], atol=0.05)
    np.testing.assert_allclose(state(browser)["goal"], [3.5, -2.5])
    browser.find_element("css selector", "input[value=agent]").click()
    click(browser, [-4.0, 4.0])
    np.testing.assert_allclose(state(browser)["start"], [-4.0, 4.0], atol=0.05)
    click(browser, [0.0, 4.0], modifiers=8)  # with Shift: the goal
    np.testing.assert_allclose(state(browser)["goal"], [0.0, 4.0], atol=0.05)


def test_a_finger_places_the_goal(page):
    browser = page(width=360)
    x, y = at(browser, [2.0, -2.0])
    browser.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": True})
    touch = "Input.dispatchTouchEvent"
    browser.execute_cdp_cmd(touch, {"type": "touchStart", "touchPoints": [{"x": x, "y": y}]})
    browser.execute_cdp_cmd(touch, {"type": "touchEnd", "touchPoints": []})
    browser.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": False})
    np.testing.assert_allclose(state(browser)["goal"], [2.0, -2.0], atol=0.1)


def test_goals_and_agents_stay_out_of_walls(page):
    browser = page()
    places = run(
        browser,
        "merlin.select(1); return arguments[0].map(p => { merlin.setGoal(p); merlin.setAgent(p);"
        "return [merlin.state().goal, merlin.state().agent]; });",
        [[0, 0], [0.1, 0.7], [-5, 0], [9, 9], [2, 3]],
    )
    for goal, agent in places:
        assert ROOMS.is_free(np.array([goal, agent])).all()
    assert places[3] == [[5, 5], [5, 5]]
    assert places[4] == [[2, 3], [2, 3]]


def test_keys(page):
    from selenium.webdriver.common.keys import Keys

    browser = page()
    press(browser, Keys.ARROW_LEFT)
    assert state(browser)["goal"] == [3.25, -2.5]
    press(browser, "n")
    assert state(browser)["steps"] == 1
    assert len(state(browser)["trail"]) == 1
    press(browser, "r")
    assert state(browser)["steps"] == 0
    run(browser, "document.getElementById('agent-handle').focus()")
    press(browser, Keys.ARROW_UP)
    assert state(browser)["agent"] == [-3, -2.75]
    press(browser, " ")
    assert state(browser)["playing"]
    press(browser, " ")
    assert not state(browser)["playing"]
    press(browser, "2")
    assert state(browser)["policy"] == 1
    press(browser, "s")
    assert state(browser)["start"] != [-3, -2.75]
    label = "return document.getElementById('goal-handle').getAttribute('aria-label')"
    assert "arrow keys move it" in after_frames(browser, label)


def test_horizon_changes_what_the_policy_does(page):
    browser = page()
    before = run(browser, "return merlin.act([0, 0], [3, 3]).mean")
    run(
        browser,
        "const slider = document.getElementById('horizon'); slider.value = 40;"
        "slider.dispatchEvent(new Event('input'));",
    )
    assert state(browser)["horizon"] == 40
    assert (
        after_frames(browser, "return document.getElementById('horizon-value').textContent") == "40"
    )
    assert run(browser, "return merlin.act([0, 0], [3, 3]).mean") != before
    run(browser, "merlin.select(1)")
    assert state(browser)["horizon"] is None
    assert run(browser, "return document.getElementById('horizon').disabled")
    run(browser, "merlin.select(0)")
    assert state(browser)["horizon"] == 40


def test_switching_policies_keeps_the_places(page):
    browser = page()
    run(browser, "merlin.setGoal([4, -3])")
    browser.find_elements("css selector", "#policies input")[1].click()
    assert state(browser)["policy"] == 1
    assert state(browser)["goal"] == [4, -3]
    assert run(browser, "return document.getElementById('task').textContent") == "PointRooms"


def test_recorded_episodes_replay(page):
    browser = page()
    browser.find_elements("css selector", "#policies input")[2].click()
    assert run(browser, "return document.querySelector('.stage').hidden")
    assert len(browser.find_elements("css selector", "#views canvas")) == 2
    buttons = browser.find_elements("css selector", "#episodes button")
    assert len(buttons) == 5
    buttons[3].click()
    run(
        browser,
        "const slider = document.getElementById('time'); slider.value = 50;"
        "slider.dispatchEvent(new Event('input'));",
    )
    words = after_frames(browser, "return document.getElementById('status').textContent")
    assert words.startswith("Step 50 of 50, ")
    success = run(browser, "return merlin.replay.succeeded(3)")
    assert words.endswith("not at the goal") != success
    press(browser, "r")
    browser.find_element("id", "step").click()
    assert run(browser, "return merlin.replay.time()") == 1


@pytest.mark.parametrize("index", [0, 1, 2])
@pytest.mark.parametrize("width", [360, 768])
def test_nothing_scrolls_sideways(page, width, index):
    browser = page(width=width)
    run(browser, f"merlin.select({index})")
    inner, content = run(browser, "return [innerWidth, document.documentElement.scrollWidth]")
    assert content <= inner == width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_are_readable(page, scheme):
    """Contrast by WCAG: 4.5 for text, 3 for what is drawn."""
    browser = page(scheme=scheme)
    names = ("paper", "page", "raised", "floor", "ink", "soft", "accent", "good", "bad", "arrow")
    names += ("on-accent", "goal-ink", "agent", "on-agent")
    value = "getComputedStyle(document.documentElement).getPropertyValue('--' + n).trim()"
    found = run(browser, f"return arguments[0].map(n => {value})", names)
    colour = dict(zip(names, found, strict=True))

    def luminance(name):
        rgb = np.array([int(colour[name][i : i + 2], 16) for i in (1, 3, 5)]) / 255
        linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
        return linear @ [0.2126, 0.7152, 0.0722]

    def contrast(a, b):
        high, low = sorted([luminance(a), luminance(b)], reverse=True)
        return (high + 0.05) / (low + 0.05)

    for text, ground in itertools.product(("ink", "soft", "good", "bad"), ("paper", "page")):
        assert contrast(text, ground) >= 4.5, (text, ground)
    assert contrast("on-accent", "accent") >= 4.5
    assert contrast("ink", "raised") >= 4.5
    for drawn in ("arrow", "goal-ink", "agent"):
        assert contrast(drawn, "floor") >= 3, drawn
    assert contrast("on-agent", "agent") >= 3
