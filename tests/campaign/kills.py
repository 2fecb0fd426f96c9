"""Commands that are killed at any moment, again and again, and must end as if they never were."""

import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from campaign.material import TRAIN, Material, content, remove
from campaign.processes import run, start

KILLS = 8
"""At most so many kills before a command may end; the slow bench gets fewer."""
ENDING = 2.5
"""Seconds after which what a kill has left behind is removed by the next command."""


@dataclass(frozen=True)
class Scenario:
    """A command, how it goes on after a kill, and the files that must be the same in the end."""

    name: str
    first: Sequence[object]
    again: Sequence[object]
    files: Sequence[str]
    codes: tuple[int, ...] = (0,)
    kills: int = KILLS
    keeps: bool = False  # whether what was there before must be there after every kill
    once: bool = False  # whether the command refuses to make again what is complete


def scenarios(material: Material) -> list[Scenario]:
    train = ["train", material.data, "--out", "run", *TRAIN]
    train[train.index("60")] = "200"
    collect = ["collect", "Reacher", "--episodes", 60, "--out", "d", "--workers", 1]
    bench = ["bench", "paper", "--tasks", "PointReach", "--methods", "gcsl", "--seeds", 1]
    bench += ["--variants", "random"]
    bench += ["--updates", 20, "--episodes", 4, "--final-episodes", 2, "--workers", 1, "--out", "b"]
    found = [
        Scenario(
            "train",
            train,
            ["train", "--out", "run", "--resume"],
            ("run/seed-0/*.safetensors", "run/seed-0/result.json", "run/result.json"),
        ),
        Scenario("collect", collect, collect, ("d/*",), once=True),
        Scenario("report", ["report", "bench"], ["report", "bench"], ("bench/**/*",)),
        Scenario("bench", bench, bench, ("b/cells/*/run/seed-0/*.safetensors",), (0, 1), 3),
    ]
    for name, made in (
        ("minari", "minari:a/b-v0"),
        ("ogbench", "d.npz"),
        ("wgcsl", "d.pkl"),
        ("native", "d"),
    ):
        words = ["convert", material.formats["native"], made, "--overwrite"]
        files = ("d/*", "d.*") if name != "minari" else ("store/a/b-v0/data/metadata.json",)
        found.append(Scenario(f"convert to {name}", words, words, files, keeps=True))
    return found


def trials(material: Material, folder: Path, seed: int) -> Iterator[tuple[str, str | None]]:
    """Kills without end: the command of each, and what went wrong with it."""
    whole: dict[str, dict[str, bytes]] = {}
    seconds: dict[str, float] = {}
    rng = np.random.default_rng(seed)
    while True:
        for scenario in scenarios(material):
            place = folder / scenario.name.replace(" ", "-")
            if scenario.name not in whole:
                reference = _fresh(material, place)
                ended = run(scenario.first, reference, **_environment(reference))
                if problem := ended.problem(*scenario.codes):
                    yield scenario.name, f"without a kill: {problem}"
                    return
                whole[scenario.name] = content(reference, *scenario.files)
                seconds[scenario.name] = ended.seconds
            most = 0.6 * seconds[scenario.name]
            delays = (rng.uniform(0.0, most) for _ in range(scenario.kills))
            yield from _killed(scenario, _fresh(material, place), whole[scenario.name], delays)


def _environment(place: Path) -> dict[str, str]:
    return {"MERLIN_DATA": str(place / "cache"), "MINARI_DATASETS_PATH": str(place / "store")}


def _fresh(material: Material, place: Path) -> Path:
    remove(place)
    place.mkdir(parents=True)
    material.copy(material.bench, place / "bench")
    return place


def _killed(
    scenario: Scenario, place: Path, whole: dict[str, bytes], delays: Iterable[float]
) -> Iterator[tuple[str, str | None]]:
    """Kill a command after each of the delays, let it end, and look at what it made."""
    complete = False
    for delay in delays:
        running = start(_next(scenario, place), place, **_environment(place))
        time.sleep(delay)
        running.kill()
        ended = running.wait()
        there = content(place, *scenario.files)
        if scenario.keeps and there != whole and (there or complete):
            yield scenario.name, "what was there before the kill is not there after it"
            return
        complete = complete or there == whole
        if ended.code != -signal.SIGKILL:
            break  # it was faster
        yield scenario.name, None
    else:
        time.sleep(ENDING)
        ended = run(_next(scenario, place), place, **_environment(place))
    refused = (2,) if scenario.once and complete else ()  # the kill came after the last rename
    problem = ended.problem(*scenario.codes, *refused)
    left = [str(path.relative_to(place)) for path in place.rglob(".merlin-*")]
    made = content(place, *scenario.files)
    if problem is None and {name: made[name] for name in made if name not in left} != whole:
        problem = "the files are not those of a run without kills"
    if problem is None and left and ended.seconds > ENDING:
        problem = f"left behind: {left[0]}"
    if problem is not None:
        yield scenario.name, problem


def _next(scenario: Scenario, place: Path) -> Sequence[object]:
    """How to start a command, or to go on with it."""
    begun = scenario.name != "train" or (place / "run" / "run.json").exists()
    return scenario.again if begun else scenario.first
