"""python tests/campaign --minutes 10: one table of what was tried, was clean and failed."""

import argparse
import itertools
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

SHARES = {"kills": 0.45, "mutations": 0.35, "signals": 0.1}
"""Of the time that is left when everything that is tried once has been tried."""

Trials = Iterator[tuple[str, str | None]]


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
    """Try everything once, then go on where chance decides until the time is over."""
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

    once = {
        "attacks": attacks,
        "full disk": lambda: machine.full_disk(material, folder / "full"),
        "read-only": lambda: machine.read_only(material, folder / "read-only"),
    }
    ever = {
        "kills": lambda: kills.trials(material, folder / "kills", seed),
        "mutations": lambda: mutations.trials(material, folder / "mutations", seed),
        "signals": lambda: machine.signals(material, folder / "signals", seed),
    }
    tally = Tally()
    for name, trials in once.items():
        if only is None or name in only or (name == "attacks" and {*only} & {*ATTACKS}):
            tally.add(name, trials())
    chosen = {name: SHARES[name] for name in ever if only is None or name in only}
    left = max(deadline - time.monotonic(), 0.0)
    for name, share in chosen.items():
        until = time.monotonic() + left * share / sum(chosen.values())
        trials = ever[name]()
        tally.add(name, itertools.chain(itertools.islice(trials, 1), _until(trials, until)))
    return tally.show()


def _until(trials: Trials, deadline: float) -> Trials:
    while time.monotonic() < deadline and (trial := next(trials, None)) is not None:
        yield trial


class Tally:
    """What was tried, by section and by what was tried on."""

    def __init__(self) -> None:
        self.tried: dict[tuple[str, str], int] = {}
        self.failed: dict[tuple[str, str], list[str]] = {}

    def add(self, section: str, trials: Trials) -> None:
        for name, problem in trials:
            key = section, name
            self.tried[key] = self.tried.get(key, 0) + 1
            self.failed.setdefault(key, [])
            if problem is not None:
                self.failed[key].append(problem)
                print(f"FAILED {section}, {name}: {problem}", file=sys.stderr, flush=True)

    def show(self) -> int:
        print("| what | on | tried | clean | failed |\n|---|---|---:|---:|---:|")
        for (section, name), tried in self.tried.items():
            failed = len(self.failed[section, name])
            print(f"| {section} | {name} | {tried} | {tried - failed} | {failed} |")
        tried, failed = sum(self.tried.values()), sum(map(len, self.failed.values()))
        print(f"| all | | {tried} | {tried - failed} | {failed} |")
        return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
