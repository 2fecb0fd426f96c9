"""The grids of the benchmark: which cells there are, and how long they will take."""

from dataclasses import replace

import pytest

from helpers.bench_cells import TINY
from merlin.bench.cells import make_row
from merlin.bench.estimate import Speeds, Total, in_words, total
from merlin.bench.grid_options import GridOptions
from merlin.bench.grids import GRIDS, make_grid
from merlin.bench.schedule import in_order
from merlin.envs.registry import TASKS
from merlin.errors import MerlinError
from merlin.learners import LEARNERS, Merlin
from merlin.learners.registry import preset_names

EASY = ("PointReach", "PointRooms", "Reacher", "SawyerReach", "SawyerDoor", "FetchReach")


@pytest.mark.parametrize("name", GRIDS)
def test_cells_of_a_grid_have_names_of_their_own(name):
    cells = make_grid(name, GridOptions())
    names = [(cell.grid, cell.name) for cell in cells]
    assert len(set(names)) == len(names)
    # The same name in two grids is the same cell.
    asked = {}
    for cell in cells:
        assert asked.setdefault(cell.name, cell.describe()) == cell.describe()


def test_the_paper_grid_is_tasks_by_variants_by_methods_by_seeds():
    cells = make_grid("paper", GridOptions(seeds=3))
    # WGCSL and Actionable Models are there as the paper ran them, too.
    columns = {(c.algo, c.preset) for c in cells}
    assert columns >= {("wgcsl", None), ("wgcsl", "gofar-release"), ("am", "gofar-release")}
    assert len(cells) == 10 * 2 * len(columns) * 3
    assert {c.task for c in cells} == set(TASKS)
    assert {c.seed for c in cells} == {0, 1, 2}
    assert {c.updates for c in cells if c.task in EASY} == {5_000, 15_000, 40_000}
    assert {(c.task, c.variant) for c in cells if c.updates == 15_000} == {("SawyerDoor", "expert")}
    assert {(c.task, c.variant) for c in cells if c.updates == 40_000} == {("SawyerDoor", "random")}
    assert {c.updates for c in cells if c.task not in EASY} == {50_000}
    assert {c.data_episodes for c in cells} == {2_000, 10_000}
    assert {c.final_episodes for c in cells if c.task.startswith("Point")} == {1_000}
    assert {c.final_episodes for c in cells if not c.task.startswith("Point")} == {200}


def test_a_grid_has_the_seeds_and_sizes_that_a_laptop_can_do():
    cells = make_grid("paper", GridOptions(tasks=("Reacher", "FetchPush"), variants=("random",)))

    def seeds(task, method):
        return [c.seed for c in cells if (c.task, c.algo, c.preset) == (task, *method)]

    assert seeds("Reacher", ("merlin", None)) == [0, 1, 2]
    assert seeds("FetchPush", ("merlin", None)) == [0, 1]
    assert seeds("FetchPush", ("dd", "small")) == seeds("Reacher", ("beso", "small")) == [0]
    options = GridOptions(tasks=("Reacher",), preset="default", methods=("dd",))
    released = make_grid("paper", options)
    assert {cell.preset for cell in released} == {None}


def test_what_is_worth_most_runs_first():
    chosen = GridOptions(tasks=("FetchPush", "Reacher", "PointReach"))
    cells = make_grid("paper", chosen)
    ordered = in_order(reversed(cells), Speeds().seconds)
    assert sorted(map(repr, ordered)) == sorted(map(repr, cells))
    main = [c for c in ordered if c.algo != "merlin-map" and c.preset != "gofar-release"]
    first = [c for c in main if c.seed == 0]
    # Every dataset once, easier tasks first, before any second seed and any column of ours alone.
    assert ordered[: len(first)] == first
    rows = list(dict.fromkeys((c.task, c.variant) for c in first))
    assert [(c.task, c.variant) for c in first] == [row for row in rows for _ in range(11)]
    assert [task for task, _ in rows[-2:]] == ["FetchPush", "FetchPush"]
    for row in rows:
        methods = [c.algo for c in first if (c.task, c.variant) == row]
        assert set(methods[-3:]) == {"dd", "g-dql", "beso"}
        assert set(methods[:2]) == {"gcsl", "merlin"}
    seeds = [c.seed for c in ordered]
    assert seeds == sorted(seeds)
    # What takes an unknown time comes after what is known.
    known = [c for c in cells if c.algo in ("merlin", "gcsl") and c.seed == 0]
    guess = in_order(known, lambda c: None if c.algo == "merlin" else 5.0)
    assert [c.algo for c in guess] == ["gcsl", "merlin"] * 6


def test_the_papers_own_values_are_a_column_of_their_own():
    ours, theirs = (
        make_grid("paper", GridOptions(tasks=("SawyerDoor",), methods=("merlin",), tuned=tuned))[0]
        for tuned in ("own", "paper")
    )
    assert "tuned" not in ours.name + ours.command
    assert "tuned=paper" in theirs.name
    assert "--tuned paper" in theirs.command
    assert theirs.describe() == {**ours.describe(), "tuned": "paper"}
    with pytest.raises(MerlinError, match="tuned: 'mine' is not own or paper"):
        make_grid("paper", GridOptions(tuned="mine"))


def test_a_new_method_is_in_the_paper_grid_by_itself(monkeypatch):
    before = {cell.algo for cell in make_grid("paper", GridOptions())}
    monkeypatch.setitem(LEARNERS, "mine", Merlin)
    assert {cell.algo for cell in make_grid("paper", GridOptions())} == before | {"mine"}
    assert "mine" in {cell.algo for cell in make_grid("timing", GridOptions())}


def test_options_narrow_a_grid():
    options = GridOptions(
        tasks=("Reacher",),
        variants=("expert",),
        methods=("merlin",),
        seeds=2,
        seed=5,
        updates=70,
        final_episodes=9,
        eval_every=7,
        episodes=11,
    )
    cells = make_grid("paper", options)
    assert [(c.name, c.updates, c.final_episodes, c.eval_every, c.episodes) for c in cells] == [
        ("Reacher-expert-merlin-s5", 70, 9, 7, 11),
        ("Reacher-expert-merlin-s6", 70, 9, 7, 11),
    ]


def test_a_grid_from_images():
    cells = make_grid("paper", GridOptions(pixels=True, seeds=1, variants=("random",)))
    assert {cell.task for cell in cells} == {name for name, task in TASKS.items() if task.pixels}
    names = {cell.name for cell in cells}
    assert "PointReach-random-merlin-batch_size=64-pixels-s0" in names
    stitched = next(cell for cell in cells if cell.algo == "merlin-np")
    asked = {"batch_size": "64", "encoder_max_updates": "1000", "threshold": "auto"}
    assert dict(stitched.settings) == asked
    assert "--pixels" in stitched.command
    assert stitched.describe()["pixels"]
    # Rows of states from before there were images are still what is asked for.
    assert "pixels" not in TINY.describe()
    with pytest.raises(MerlinError, match="pixels: FetchPush has no images"):
        make_grid("paper", GridOptions(pixels=True, tasks=("FetchPush",)))
    with pytest.raises(MerlinError, match="pixels: the grid ogbench has none"):
        make_grid("ogbench", GridOptions(pixels=True))


def test_times_are_measured_of_states_and_images_small_and_large():
    for pixels, task in ((False, "FetchReach"), (True, "SawyerReach")):
        cells = make_grid("timing", GridOptions(pixels=pixels))
        assert {(cell.task, cell.pixels, cell.timed) for cell in cells} == {(task, pixels, True)}
        assert [c.preset for c in cells if c.algo == "dd"] == ["small", None]
        assert {"merlin-p", "merlin-np", "gcsl", "g-dql", "beso"} <= {c.algo for c in cells}
    small = make_grid("timing", GridOptions(preset="small"))
    assert [c.preset for c in small if c.algo == "dd"] == ["small"]


def test_the_ablations_are_those_of_the_paper():
    options = GridOptions(tasks=("PointRooms",), variants=("expert",))
    ratios = [dict(cell.settings)["hindsight_ratio"] for cell in make_grid("hindsight", options)]
    assert ratios == ["0", "0.2", "0.5", "0.8", "1"]
    told, deaf = make_grid("horizon", options)
    assert told.horizons == (1, 5, 10, 20, 50)
    assert told.settings == ()
    assert (deaf.horizons, deaf.settings) == ((), (("horizon", "none"),))


# How long


def test_estimates_learn_from_rows():
    cell = replace(TINY, settings=(), updates=100_000)
    row = make_row(cell, timing={"update_ms": 50.0})
    assert Speeds([row]).seconds(cell) > 5_000 > Speeds().seconds(cell)
    # What images cost is not taken from states, nor the other way round.
    seeing = replace(cell, pixels=True)
    assert Speeds([row]).seconds(seeing) == Speeds().seconds(seeing) > Speeds().seconds(cell)
    from_images = replace(row, pixels=True)
    assert Speeds([from_images]).seconds(cell) == Speeds().seconds(cell)
    assert Speeds([from_images]).seconds(seeing) > 5_000 > Speeds().seconds(seeing)
    # Two at a time, but the longest alone cannot be shared out.
    cells = [cell, replace(cell, updates=10)]
    assert total(cells, Speeds(), 2) == Total(Speeds().seconds(cell), ())
    assert total([cell] * 4, Speeds(), 2).seconds == pytest.approx(2 * Speeds().seconds(cell))


def test_every_learner_and_preset_has_a_speed_of_its_own():
    """Decision Diffuser and BESO at their releases' sizes take seconds, Merlin milliseconds."""
    plain = replace(TINY, settings=(), updates=1000)
    merlin = Speeds().seconds(plain)
    for name in ("gcsl", "wgcsl", "am", "gofar", "merlin-plus", "dd", "g-dql", "beso"):
        for task in ("PointReach", "FetchPush", "HandReach"):
            for preset in (None, *preset_names(name)):
                assert Speeds().seconds(replace(plain, algo=name, task=task, preset=preset)) > 0
    for name in ("dd", "beso"):
        large = Speeds().seconds(replace(plain, algo=name))
        assert large > 100 * merlin
        assert Speeds().seconds(replace(plain, algo=name, preset="small")) < large / 10
    # What augmentations take is added to it, whichever preset is theirs.
    for name in ("merlin-p", "merlin-np", "merlin-mb", "merlin-ts"):
        assert merlin + 20 < Speeds().seconds(replace(plain, algo=name)) < merlin + 300


def test_what_was_never_measured_is_unknown():
    seen = replace(TINY, settings=(), updates=1000, pixels=True)
    unseen = replace(seen, algo="beso")
    encoded = replace(seen, settings=(("latent_updates", "500"),))
    assert Speeds().seconds(seen) > 20
    assert Speeds().seconds(unseen) is Speeds().seconds(encoded) is None
    found = total([seen, unseen, encoded], Speeds(), 1)
    assert found == Total(Speeds().seconds(seen), (unseen, encoded))
    assert str(found).endswith(" s, and 2 cells of beso, merlin for an unknown time")
    assert str(total([unseen], Speeds(), 1)) == "1 cell of beso for an unknown time"
    row = make_row(unseen, timing={"update_ms": 50.0})
    assert Speeds([row]).seconds(unseen) > 50


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(None, "unknown"), (3, "3 s"), (100, "2 min"), (7200, "2.0 h"), (1e6, "11.6 days")],
)
def test_durations_in_words(seconds, words):
    assert in_words(seconds) == words
