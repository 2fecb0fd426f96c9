"""python tests/campaign --minutes 10: one table of what was tried, was clean and failed."""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

MUTATIONS = 0.8
"""Of the time that is left to its lane when all bits have been flipped; signals get the rest."""

Trials = Iterator[tuple[str, str | None]]
Section = tuple[str, Callable[[], Trials], float]
"""Its name, its trials, and when it ends: a share of the time that is left, or 1 for all."""


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--minutes", type=float, default=10.0, help="how long, about")
    options.add_argument("--seed", type=int, default=0, help="of all that is random")
    options.add_argument("--only", nargs="*", help="only these sections, or attacks")
    asked = options.parse_args()
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="merlin-campaign-"))
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder / "compiled")
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    try:
        return campaign(folder, began + 60 * asked.minutes, asked.seed, asked.only)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def campaign(folder: Path, deadline: float, seed: int, only: list[str] | None) -> int:
    """Two lanes side by side: each tries all that is tried once, then goes on by chance."""
    from campaign import kills, machine, mutations
    from campaign.attacks import ATTACKS
    from campaign.material import Material

    material = Material(folder / "good")

    def attacks() -> Trials:
        for name, attack in ATTACKS.items():
            if only is None or name in only or "attacks" in only:
                place = folder / "attacks" / name
                place.mkdir(parents=True)
                yield name, attack(material, place)

    def wanted(lane: list[Section]) -> list[Section]:
        if only is None:
            return lane
        asked = {*only, *(["attacks"] if {*only} & {*ATTACKS} else [])}
        return [section for section in lane if section[0] in asked]

    lanes: list[list[Section]] = [
        [
            ("attacks", attacks, 0.0),
            ("full disk", lambda: machine.full_disk(material, folder / "full"), 0.0),
            ("read-only", lambda: machine.read_only(material, folder / "read-only"), 0.0),
            ("kills", lambda: kills.trials(material, folder / "kills", seed), 1.0),
        ],
        [
            ("flipped bits", lambda: mutations.flips(material, folder / "flips", seed), 0.0),
            (
                "mutations",
                lambda: mutations.trials(material, folder / "mutations", seed),
                MUTATIONS,
            ),
            ("signals", lambda: machine.signals(material, folder / "signals", seed), 1.0),
        ],
    ]
    tally = Tally()
    for section, name, problem in side_by_side([wanted(lane) for lane in lanes], deadline):
        tally.add(section, name, problem)
    return tally.show()


def side_by_side(
    lanes: Sequence[Sequence[Section]], deadline: float
) -> Iterator[tuple[str, str, str | None]]:
    """The trials of all lanes, each in a process of its own."""
    reading, writing = os.pipe()
    children = []
    for lane in filter(None, lanes):
        sys.stdout.flush()
        if (child := os.fork()) == 0:
            os.close(reading)
            code = 1
            try:
                _work(lane, deadline, writing)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        children.append(child)
    os.close(writing)
    with open(reading) as answers:
        for line in answers:
            section, name, problem = json.loads(line)
            yield section, name, problem
    for child in children:
        if (code := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])) != 0:
            yield "campaign", "itself", f"a lane ended with {code}"


def _work(lane: Sequence[Section], deadline: float, answers: int) -> None:
    """Try the sections one after the other: what is tried once to its end, the rest for a time."""
    for section, trials, share in lane:
        now = time.monotonic()
        until = now + share * max(deadline - now, 0.0) if share else float("inf")
        for number, (name, problem) in enumerate(trials()):
            line = json.dumps([section, name, problem and problem[:1000]])
            os.write(answers, f"{line}\n".encode())
            if time.monotonic() > until and number:
                break


class Tally:
    """What was tried, by section and by what was tried on."""

    def __init__(self) -> None:
        self.tried: dict[tuple[str, str], int] = {}
        self.failed: dict[tuple[str, str], list[str]] = {}

    def add(self, section: str, name: str, problem: str | None) -> None:
        key = section, name
        self.tried[key] = self.tried.get(key, 0) + 1
        self.failed.setdefault(key, [])
        if problem is not None:
            self.failed[key].append(problem)
            print(f"FAILED {section}, {name}: {problem}", file=sys.stderr, flush=True)

    def show(self) -> int:
        print("| what | on | tried | clean | failed |\n|---|---|---:|---:|---:|")
        for (section, name), tried in sorted(self.tried.items()):
            failed = len(self.failed[section, name])
            print(f"| {section} | {name} | {tried} | {tried - failed} | {failed} |")
        for section in sorted({section for section, _ in self.tried}):
            tried = sum(n for (other, _), n in self.tried.items() if other == section)
            failed = sum(len(f) for (other, _), f in self.failed.items() if other == section)
            print(f"| {section} | all | {tried} | {tried - failed} | {failed} |")
        tried, failed = sum(self.tried.values()), sum(map(len, self.failed.values()))
        print(f"| all | | {tried} | {tried - failed} | {failed} |")
        return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
