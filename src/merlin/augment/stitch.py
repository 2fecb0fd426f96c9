"""Merlin-NP: synthetic trajectories by stitching recorded ones where they meet.

Jain and Ravanbakhsh, "Learning to Reach Goals via Diffusion" (ICML 2024), section 5.2.

If two states of different episodes are nearly identical, the path to one also leads to the other. A
walk starts at the last state of an episode and moves back step by step. At each state it finds the
nearest state of another episode in the space of a contrastive encoder (`encoder.py`). If the cosine
similarity reaches the threshold, it continues backwards from there. It never switches straight back
to the previous episode, since otherwise two parallel episodes would alternate at every step. A walk
ends when it has as many states as the episode it began in. Walks that reach a first state earlier
are dropped, and so are walks that never switched, as they copy an episode. The forward variant
starts at first states.

A walk is a list of dataset rows in chronological order. In both directions each row keeps its own
action, so every state-action pair was recorded. Only the state after a switch is approximate: it is
a neighbour of the true next state.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.spatial import cKDTree

from merlin.augment.base import (
    Augmentation,
    Augmented,
    assemble,
    check_settings,
    say_if_fewer,
)
from merlin.augment.encoder import train_encoder
from merlin.augment.fit import updates_of
from merlin.data.dataset import Dataset
from merlin.data.images import Selection
from merlin.errors import MerlinError
from merlin.io.progress import Progress

NONE, UNKNOWN = -1, -2
Rows = Int[np.ndarray, " n"]
Partner = Callable[[Rows], Rows]
"""Maps each row to the row to switch to, or NONE."""
WANTED_STITCHES = 2.5
SAMPLE = 1000
"""Number of walks used to calibrate a threshold."""


class Neighbours:
    """Finds the nearest state of another episode within a distance bound.

    The tree search stops at the bound, since farther neighbours are not needed. Results are cached
    on first use, because walks visit the same states many times. They remain valid if `bound` is
    reduced.
    """

    def __init__(
        self,
        embeddings: Float[np.ndarray, "states embedding"],
        starts: Int[np.ndarray, " bounds"],
        *,
        bound: float = math.inf,
        among: Bool[np.ndarray, " states"] | None = None,
    ):
        self.bound = bound
        among = np.ones(len(embeddings), bool) if among is None else among
        # Eligible neighbours come first, so that the tree needs no copy of them.
        count = np.arange(len(embeddings), dtype=np.int32)
        self._rows = np.concatenate([count[among], count[~among]])
        self._place = np.empty_like(self._rows)
        self._place[self._rows] = count
        # Rotating the principal axes to the front preserves distances and aligns the tree's boxes
        # with the surface on which the embeddings lie.
        self._points = _along_main_axes(embeddings, self._rows)
        self._episode = np.repeat(count[: len(starts) - 1], np.diff(starts))
        self._longest = int(np.diff(starts).max())
        # Splitting boxes at their midpoint is much faster than at the median, and no worse here.
        self._tree = cKDTree(self._points[: among.sum()], leafsize=8, balanced_tree=False)
        self._order = np.zeros_like(self._rows)
        self._order[self._rows[self._tree.indices]] = count[: self._tree.n]
        self._known = np.full(len(embeddings), UNKNOWN, np.int32)
        self._distance = np.full(len(embeddings), np.inf)

    def nearest(self, states: Rows) -> tuple[Rows, Float[np.ndarray, " n"]]:
        """The nearest rows of other episodes and their distances, or NONE and infinity."""
        new = np.unique(states[self._known[states] == UNKNOWN])
        if len(new):
            self._known[new], self._distance[new] = self._search(new)
        return self._known[states], self._distance[states]

    def within(self, bound: float) -> Partner:
        """Partners within a bound, which may be tighter than the bound of the search."""

        def partner(states: Rows) -> Rows:
            rows, distance = self.nearest(states)
            return np.where(distance <= bound, rows, NONE)

        return partner

    def _search(self, states: Rows) -> tuple[Rows, Float[np.ndarray, " n"]]:
        """Query increasing numbers of neighbours until one is foreign or the bound is exceeded."""
        found, distance = np.full(len(states), NONE), np.full(len(states), np.inf)
        # In tree order: states that are queried together share branches.
        pending, k = np.argsort(self._order[states], kind="stable"), 2
        while len(pending) and self._tree.n:
            asked = states[pending]
            far, index = self._tree.query(
                self._points[self._place[asked]],
                k=np.arange(1, k + 1),
                distance_upper_bound=np.nextafter(self.bound, np.inf),
                workers=-1,
            )
            near = np.isfinite(far)
            rows = self._rows[np.where(near, index, 0)]
            foreign = near & (self._episode[rows] != self._episode[asked][:, None])
            first = foreign.argmax(1)
            has = foreign.any(1)
            hit = pending[has]
            found[hit] = rows[has, first[has]]
            distance[hit] = far[has, first[has]]
            # All k neighbours are of the same episode; look farther if there are more.
            pending = pending[~has & near[:, -1]]
            if k > self._longest:
                break
            k = min(4 * k, self._longest + 1)
        return found, distance


class Walks(NamedTuple):
    """Rows of walks in chronological order, and which walks are complete."""

    rows: Int[np.ndarray, "walks steps"]  # NONE beyond the end of a walk
    lengths: Int[np.ndarray, " walks"]
    complete: Bool[np.ndarray, " walks"]

    def switches(self) -> Bool[np.ndarray, "walks pairs"]:
        """Where the next row is not the recorded successor."""
        before, after = self.rows[:, :-1], self.rows[:, 1:]
        return (before != NONE) & (after != NONE) & (after != before + 1)

    def new(self) -> Bool[np.ndarray, " walks"]:
        """Which walks are complete and do not copy an episode."""
        return self.complete & self.switches().any(1)

    def stitches(self) -> float:
        """Mean number of switches per walk."""
        return float(self.switches().sum(1).mean()) if len(self.rows) else 0.0

    def only(self, kept: Bool[np.ndarray, " walks"]) -> "Walks":
        """A subset of the walks."""
        return Walks(*(part[kept] for part in self))


def _along_main_axes(
    points: Float[np.ndarray, "states embedding"], order: Rows
) -> Float[np.ndarray, "states embedding"]:
    """The points, reordered and rotated onto their principal axes."""
    some = points[:: max(1, len(points) // 10_000)].astype(np.float64)
    axes = np.linalg.eigh(np.cov(some.T, bias=True).reshape(points.shape[1], -1))[1]
    axes, turned = np.ascontiguousarray(axes[:, ::-1]), np.empty(points.shape)
    for begin in range(0, len(points), 1000):  # chunks that fit in the cache: ten times faster
        piece = points[order[begin : begin + 1000]].astype(np.float64)
        np.matmul(piece, axes, out=turned[begin : begin + 1000])
    return turned


def walk(
    episodes: Rows, starts: Int[np.ndarray, " bounds"], partner: Partner, *, forward: bool
) -> Walks:
    """One walk from an end of each episode, in parallel: one batched query per step."""
    lengths = np.diff(starts)[episodes]
    longest = int(lengths.max())
    episode_of = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    first, last = np.zeros(starts[-1], bool), np.zeros(starts[-1], bool)
    first[starts[:-1]], last[starts[1:] - 1] = True, True
    left = np.full(len(episodes), NONE)  # the previous episode of each walk
    # Walks spend most steps in their first episode, and one large query fills the cache of
    # `Neighbours` twice as fast.
    began_in = np.zeros(len(starts) - 1, bool)
    began_in[episodes] = True
    partner(np.flatnonzero(np.repeat(began_in, np.diff(starts))))

    def switch(walks: Rows, here: Rows) -> Rows:
        there = partner(here)
        allowed = (there != NONE) & (episode_of[there] != left[walks])
        left[walks[allowed]] = episode_of[here[allowed]]
        return np.where(allowed, there, here)

    rows = np.full((len(episodes), longest), NONE)
    rows[:, 0] = starts[episodes] if forward else starts[episodes + 1] - 1
    alive = np.ones(len(episodes), bool)
    for step in range(1, longest):
        going = np.flatnonzero(alive & (lengths > step))
        here = rows[going, step - 1]
        if forward:
            ended = last[here]
            there = here + ~ended
            # The last state needs no action, so switching there has no effect.
            inner = ~ended & (lengths[going] > step + 1)
            there[inner] = switch(going[inner], there[inner])
        else:
            origin = switch(going, here)
            ended = first[origin]
            there = origin - ~ended
        rows[going, step] = np.where(ended, NONE, there)
        alive[going[ended]] = False
    if not forward:
        for length in np.unique(lengths):
            same = lengths == length
            rows[same, :length] = rows[same, :length][:, ::-1]
    return Walks(rows, lengths, alive)


def threshold_for(
    stitches: float, neighbours: Neighbours, starts: np.ndarray, episodes: Rows, *, forward: bool
) -> float:
    """The similarity threshold at which walks make a given mean number of switches."""
    states = np.concatenate([np.arange(starts[e], starts[e + 1]) for e in episodes[:50]])
    distances = neighbours.nearest(states)[1]
    positive = distances[np.isfinite(distances) & (distances > 0)]
    if not len(positive):
        raise MerlinError("threshold: no two episodes come close; set it to a number below 1.")
    low, high = math.log(positive.min()), math.log(positive.max())
    for _ in range(20):
        middle = (low + high) / 2
        walks = walk(episodes, starts, neighbours.within(math.exp(middle)), forward=forward)
        # Incomplete walks had only as many chances to switch as steps.
        steps = (walks.rows != NONE).sum() - len(episodes)
        rate = walks.switches().sum() / max(1, steps) * (walks.lengths.mean() - 1)
        new = walks.new()
        made = walks.only(new).stitches() if new.sum() >= len(episodes) / 20 else float(rate)
        low, high = (middle, high) if made < stitches else (low, middle)
    return 1.0 - math.exp(low) ** 2 / 2


@dataclass(frozen=True)
class Stitch(Augmentation):
    """Trajectories stitched together from recorded ones (Merlin-NP)."""

    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "paper": {"threshold": 0.9999, "encoder_max_updates": None},
        "release": {
            "threshold": 0.9999,
            "copies": True,
            "final_goals": True,
            "encoder_max_updates": None,
            "encoder_hidden": (512, 512, 512),
            "encoder_learning_rate": 3e-4,
            "encoder_epochs": 100,
        },
    }

    threshold: float | str = "auto"  # cosine similarity for a switch; auto: 2.5 per walk
    trajectories: int | None = None  # to make; none: as many as recorded, at most 10,000
    copies: bool = False  # keep walks that never switch
    final_goals: bool = False  # use the last state as the desired goal, as in the release
    encoder_hidden: tuple[int, ...] = (256, 256, 256)
    embedding_dim: int = 16
    encoder_temperature: float = 0.5
    encoder_learning_rate: float = 5e-4
    encoder_epochs: int = 20
    encoder_batch: int = 256
    encoder_max_updates: int | None = 40_000  # 20 epochs of 10,000 episodes
    attempts: int = 50  # limit on the walks per requested trajectory
    forward: bool = False  # walk forwards from first states

    def __post_init__(self) -> None:
        numeric = not isinstance(self.threshold, str)
        if not (self.threshold == "auto" or (numeric and -1.0 <= float(self.threshold) < 1.0)):
            raise MerlinError(
                f"threshold: {self.threshold} is not a cosine below 1; give e.g. 0.9999, or auto."
            )
        counts = [self.embedding_dim, self.encoder_epochs, self.encoder_batch, self.attempts]
        counts += [*self.encoder_hidden, len(self.encoder_hidden)]
        counts += [n for n in (self.encoder_max_updates, self.trajectories) if n is not None]
        check_settings(self, counts, ("encoder_temperature", "encoder_learning_rate"))

    @property
    def sees_images(self) -> bool:
        return True

    def __call__(self, data: Dataset, *, seed: int, quiet: bool = True) -> Augmented:
        if len(data) < 2:
            raise MerlinError("stitching: needs at least two episodes to switch between.")
        embeddings, loss = self.embed(data, seed=seed, quiet=quiet)
        walks, report = self.stitch(data, embeddings, seed=seed, quiet=quiet)
        report = {**report, "encoder_loss": loss}
        return Augmented(_dataset_of(data, walks, self.final_goals), report)

    def embed(
        self, data: Dataset, *, seed: int, quiet: bool = True
    ) -> tuple[Float[np.ndarray, "states embedding"], float]:
        """Embeddings of all states from a newly trained encoder, and its loss."""
        updates = updates_of(
            self.encoder_epochs, len(data.actions), self.encoder_batch, self.encoder_max_updates
        )
        encoder, loss = train_encoder(
            data,
            hidden=self.encoder_hidden,
            dim=self.embedding_dim,
            temperature=self.encoder_temperature,
            updates=updates,
            batch=self.encoder_batch,
            learning_rate=self.encoder_learning_rate,
            key=jax.random.key(seed),
            quiet=quiet,
        )
        return encoder.embed_all(data.observations), loss

    def stitch(
        self,
        data: Dataset,
        embeddings: Float[np.ndarray, "states embedding"],
        *,
        seed: int,
        quiet: bool = True,
    ) -> tuple[Walks, dict[str, Any]]:
        """Walk through the embedded data until there are enough walks; also return statistics."""
        rng = np.random.default_rng((seed, 1))

        def draw(n: int) -> Rows:
            """Episodes in random order, each once before any repeats."""
            rounds = [rng.permutation(len(data)) for _ in range(-(-n // len(data)))]
            return np.concatenate(rounds)[:n]

        starts = np.asarray(data.starts)
        # Never switch to a state where the walk would end: first states going back, last states
        # going on.
        among = np.ones(len(embeddings), bool)
        among[starts[1:] - 1 if self.forward else starts[:-1]] = False
        with Progress("index", len(embeddings), "states", quiet=quiet) as bar:
            neighbours = Neighbours(embeddings, starts, among=among)
            threshold = self.threshold
            if isinstance(threshold, str):
                threshold = threshold_for(
                    WANTED_STITCHES, neighbours, starts, draw(SAMPLE), forward=self.forward
                )
            neighbours.bound = math.sqrt(2.0 * (1.0 - threshold))
            bar.update(len(embeddings))
        partner = neighbours.within(neighbours.bound)
        wanted = self.wanted(data)
        made, walked, tried, short, copies = [], 0, 0, 0, 0
        label = "stitching forwards" if self.forward else "stitching backwards"
        with Progress(label, wanted, "trajectories", quiet=quiet) as bar:
            while walked < wanted and tried < self.attempts * wanted:
                walks = walk(draw(wanted), starts, partner, forward=self.forward)
                kept = walks.complete if self.copies else walks.new()
                made.append(walks.only(kept))
                walked, tried = walked + int(kept.sum()), tried + wanted
                short += int((~walks.complete).sum())
                copies += int((walks.complete & ~kept).sum())
                bar.update(min(walked, wanted))
        if not walked:
            raise MerlinError(
                f"stitching: of {tried} walks {short} reached the end of an episode too early and "
                f"{copies} never switched; set threshold=auto."
            )
        advice = "set threshold=auto, or raise the number of attempts."
        say_if_fewer(walked, wanted, tried, advice=advice, quiet=quiet)
        joined = _join(made, wanted)
        return joined, {
            "trajectories": len(joined.rows),
            "wanted": wanted,
            "walks": tried,
            "dropped": short / tried,
            "copies_refused": copies / tried,
            "threshold": threshold,
            "stitches": joined.stitches(),
            "without_stitches": float(np.mean(~joined.switches().any(1))),
        }


def _join(parts: list[Walks], most: int) -> Walks:
    width = max(part.rows.shape[1] for part in parts)
    rows = [
        np.pad(part.rows, ((0, 0), (0, width - part.rows.shape[1])), constant_values=NONE)
        for part in parts
    ]
    _, lengths, complete = zip(*parts, strict=True)
    return Walks(*(np.concatenate(column)[:most] for column in (rows, lengths, complete)))


def _dataset_of(data: Dataset, walks: Walks, final_goals: bool) -> Dataset:
    """Convert complete walks to a dataset; images are not copied."""
    inside = walks.rows != NONE
    rows = walks.rows[inside]
    # Episodes have one action fewer than states, so action rows are offset by the episode index.
    episode = np.searchsorted(data.starts, rows, side="right") - 1
    acting = np.ones(len(rows), bool)
    acting[np.cumsum(walks.lengths) - 1] = False
    observations = data.observations
    states = (
        Selection(observations, rows) if observations.ndim > 2 else np.asarray(observations[rows])
    )
    actions = np.asarray(data.actions[(rows - episode)[acting]])
    achieved = np.asarray(data.achieved_goals[rows])
    return assemble(data, states, actions, achieved, walks.lengths, final_goals=final_goals)
