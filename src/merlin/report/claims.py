"""The claims of the paper, and whether the rows support them.

Every claim is decided by one statistic, fixed in advance. A comparison uses rows with the same
data, number of updates and seed (`selection.alike`). It is undecided until at least half of its
datasets, and at least six, have rows.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from merlin.bench.grids import is_harder
from merlin.bench.rows import Row
from merlin.envs.registry import TASKS, VARIANTS, find
from merlin.evaluation.statistics import Estimate, lead_on_average, paired_improvement
from merlin.report import paper, selection
from merlin.report.ablations import NO_HORIZON
from merlin.report.text_tables import NONE, TextTable, estimate, plain_table

HOLDS, FAILS, UNDECIDED = "holds", "does not hold", "undecided"
FEWEST = 6
"""Minimum number of datasets: fewer agree by chance in more than one case of twenty."""
FASTER = 10.0
"""The ratio that counts as an order of magnitude."""
BASELINES = ("gcsl", "wgcsl", "am", "gofar", "dd", "g-dql", "beso")
DIFFUSION = ("dd", "g-dql", "beso")
MAIN = ("merlin", "merlin-p", "merlin-np", *BASELINES)
LOW, HIGH = ("0.2", "0.5"), ("0.8", "1")
"""Hindsight ratios that the paper calls low to moderate, and high."""
NEAR, FAR = ("1", "5"), ("10", "20", "50")
"""Horizons that the paper finds best on the easier tasks, and on the harder ones."""

Dataset = tuple[str, str]
"""Variant and task."""
Side = Callable[[Row], dict[str, float]]
"""Maps a row to its returns by column."""
Returns = dict[Dataset, dict[str, dict[int, float]]]
"""Maps dataset, column and seed to a return."""


@dataclass(frozen=True)
class Finding:
    """One claim and its verdict."""

    claim: str
    statistic: str
    verdict: str
    there: int  # datasets, or times, that decide it
    asked: int
    value: Estimate | None = None

    def in_words(self) -> str:
        """The verdict; if undecided, with the reason."""
        if self.verdict != UNDECIDED:
            return self.verdict
        if self.value is None:
            return f"{UNDECIDED}: {self.there} of {self.asked} cells"
        return f"{UNDECIDED}: the interval includes no difference"


def findings(rows: Sequence[Row]) -> list[tuple[str, list[Finding]]]:
    """All claims by topic."""
    counted = selection.select(rows)
    timed = [r for r in counted if r.grid == "timing" and (r.timing or {}).get("action_us")]
    same = selection.alike([row for row in counted if row.grid != "timing"])

    def of(grid: str, side: Side, pixels: bool = False) -> Returns:
        return _returns([r for r in same if (r.grid, r.pixels) == (grid, pixels)], side)

    states, images = of("paper", _method), of("paper", _method, True)
    twins, stitched = of("forward-backward", _method), of("stitching", _method)
    told = of("horizon", _told)
    every, seen = _datasets("state_return"), _datasets("pixel_return")
    by_kind = {kind: [d for d in every if d[0] == kind] for kind in VARIANTS}
    easier, harder = ([d for d in every if is_harder(find(d[1])) == hard] for hard in (False, True))
    ratios, horizons = of("hindsight", _ratio), of("horizon", _horizons)
    return [
        ("From states", [*_main(states, every), _best("merlin-np", states, every)]),
        (
            "Backward and forward",
            [
                _beats("merlin-p", "merlin-mb", twins, every),
                _beats("merlin-np", "merlin-ts", twins, every),
                _beats("gcsl-ts", "gcsl", stitched, every),
                _beats("merlin-np", "gcsl-ts", stitched, every),
            ],
        ),
        (
            "Hindsight ratio and horizon",
            [
                _groups(
                    "On expert data a low hindsight ratio is better",
                    *(LOW, HIGH, ratios, by_kind["expert"]),
                ),
                _groups(
                    "On random data a high one is better", HIGH, LOW, ratios, by_kind["random"]
                ),
                _compare(
                    "Merlin is better with a horizon than without one",
                    ("told",),
                    (NO_HORIZON,),
                    told,
                    every,
                ),
                _groups("On easier tasks a short horizon is better", NEAR, FAR, horizons, easier),
                _groups("On harder tasks a longer one is better", FAR, NEAR, horizons, harder),
            ],
        ),
        ("Time", [*_times(timed, False), *_times(timed, True)]),
        ("From pixels", list(_main(images, seen))),
    ]


def _method(row: Row) -> dict[str, float]:
    name = selection.column(row)
    return {name: row.final["return"]} if name and row.final else {}


def _ratio(row: Row) -> dict[str, float]:
    value = row.settings.get("hindsight_ratio")
    return {f"{float(value):g}": row.final["return"]} if value and row.final else {}


def _horizons(row: Row) -> dict[str, float]:
    return {horizon: scores["return"] for horizon, scores in (row.horizons or {}).items()}


def _told(row: Row) -> dict[str, float]:
    """The returns at the tuned horizon and without a horizon."""
    assert row.final is not None
    none = row.settings.get("horizon", "").lower() == "none"
    return {NO_HORIZON if none else "told": row.final["return"]}


def _returns(rows: Sequence[Row], side: Side) -> Returns:
    """Returns by dataset and column; a method with several sizes counts at its release's size."""
    sizes: dict[Dataset, dict[str, dict[str, dict[int, float]]]] = {}
    for row in rows:
        for name, value in side(row).items():
            by_method = sizes.setdefault(row.dataset, {}).setdefault(name, {})
            by_method.setdefault(row.method, {})[row.seed] = value
    return {
        dataset: {
            name: by_method[min(by_method, key=lambda method: (len(method), method))]
            for name, by_method in columns.items()
        }
        for dataset, columns in sizes.items()
    }


def _datasets(table: str) -> list[Dataset]:
    known = paper.tables()[table]
    return [(v, task) for v in VARIANTS for task in TASKS if task in known[v]]


def _main(returns: Returns, datasets: Sequence[Dataset]) -> Iterator[Finding]:
    yield from (_beats("merlin", name, returns, datasets) for name in BASELINES)
    yield _beats("merlin-p", "merlin", returns, datasets)
    yield _beats("merlin-np", "merlin", returns, datasets)


def _beats(ours: str, theirs: str, returns: Returns, datasets: Sequence[Dataset]) -> Finding:
    return _compare(f"{ours} returns more than {theirs}", (ours,), (theirs,), returns, datasets)


def _groups(
    claim: str,
    ours: tuple[str, ...],
    theirs: tuple[str, ...],
    returns: Returns,
    datasets: Sequence[Dataset],
) -> Finding:
    words = f"{claim} (mean of {', '.join(ours)} against that of {', '.join(theirs)})"
    return _compare(words, ours, theirs, returns, datasets)


def _compare(
    claim: str,
    ours: tuple[str, ...],
    theirs: tuple[str, ...],
    returns: Returns,
    datasets: Sequence[Dataset],
) -> Finding:
    """The probability that one side returns more, paired by dataset and seed."""
    differences = []
    for dataset in datasets:
        columns = returns.get(dataset, {})
        if not all(name in columns for name in (*ours, *theirs)):
            continue
        seeds = set.intersection(*(set(columns[name]) for name in (*ours, *theirs)))
        one, other = (
            np.array([np.mean([columns[name][s] for name in side]) for s in sorted(seeds)])
            for side in (ours, theirs)
        )
        if seeds:
            differences.append(one - other)
    value = paired_improvement(differences) if _enough(len(differences), len(datasets)) else None
    return _decided(
        claim, "probability of improvement", value, 0.5, len(differences), len(datasets)
    )


def _best(ours: str, returns: Returns, datasets: Sequence[Dataset]) -> Finding:
    """Whether the mean return over datasets is the highest of all ten methods."""
    means = [
        [np.mean(list(returns[dataset][name].values())) for name in (ours, *_others(ours))]
        for dataset in datasets
        if set(MAIN) <= returns.get(dataset, {}).keys()
    ]
    value = None
    if _enough(len(means), len(datasets)):
        first, *others = np.array(means).T
        value = lead_on_average(first, np.array(others))
    claim = f"{ours} has the highest return on average"
    statistic = "average return less that of the best other"
    return _decided(claim, statistic, value, 0.0, len(means), len(datasets))


def _others(name: str) -> list[str]:
    return [other for other in MAIN if other != name]


def _enough(there: int, asked: int) -> bool:
    return there >= max(FEWEST, asked / 2)


def _decided(
    claim: str, statistic: str, value: Estimate | None, middle: float, there: int, asked: int
) -> Finding:
    """A claim holds if the whole interval is above the middle, and fails if it is below."""
    verdict = UNDECIDED
    if value is not None and value.interval is not None:
        low, high = value.interval
        verdict = HOLDS if low > middle else FAILS if high < middle else UNDECIDED
    return Finding(claim, statistic, verdict, there, asked, value)


def _times(timed: Sequence[Row], pixels: bool) -> Iterator[Finding]:
    """Ratios of times at the releases' sizes, on shared tasks. Minimum times have no interval."""
    source = "pixels" if pixels else "states"
    known = {
        (row.task, row.algo): row.timing or {}
        for row in timed
        if row.pixels == pixels and selection.column(row) and row.preset is None
    }
    for name in DIFFUSION:
        for what, cost in (("an update", _update), ("an action", _action)):
            ratios = [
                cost(times) / cost(known[task, "merlin"])
                for (task, algo), times in known.items()
                if algo == name and (task, "merlin") in known
            ]
            value = Estimate(float(np.exp(np.mean(np.log(ratios))))) if ratios else None
            verdict = UNDECIDED if value is None else HOLDS if value.value >= FASTER else FAILS
            yield Finding(
                f"{what[0].upper()}{what[1:]} of {name} from {source} takes an order of magnitude "
                "longer than Merlin's",
                "ratio of times",
                verdict,
                len(ratios),
                max(1, len(ratios)),
                value,
            )


def _update(times: dict) -> float:
    return float(times["update_ms"])


def _action(times: dict) -> float:
    return float(times["action_us"]["1"])


def as_tables(found: Sequence[tuple[str, list[Finding]]]) -> list[TextTable]:
    """One table per topic."""
    header = ["claim", "statistic", "value", "datasets", "here"]
    return [
        plain_table(
            f"claims-{topic.lower().replace(' ', '-')}",
            topic,
            header,
            [
                [
                    one.claim,
                    one.statistic,
                    NONE if one.value is None else estimate(one.value),
                    f"{one.there} of {one.asked}",
                    one.in_words(),
                ]
                for one in own
            ],
            labels=2,
            remarks=1,
        )
        for topic, own in found
    ]


def totals(found: Sequence[tuple[str, list[Finding]]]) -> str:
    """How many claims hold, do not, and are undecided."""
    every = [one.verdict for _, own in found for one in own]
    hold, fail, open_ = map(every.count, (HOLDS, FAILS, UNDECIDED))
    return f"Of {len(every)} claims {hold} hold, {fail} do not, and {open_} are undecided."
