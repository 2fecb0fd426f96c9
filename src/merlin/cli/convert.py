"""merlin convert"""

import re
from dataclasses import dataclass
from typing import Annotated, Any

import tyro

from merlin.cli.columns import NONE, LogColumns
from merlin.envs.registry import check_variant, choose, find
from merlin.errors import MerlinError


@dataclass(frozen=True)
class Convert:
    """Convert a dataset to another format, or to images.

    The name of the destination selects the format: NAME.pkl is the WGCSL benchmark's buffer,
    NAME.npz is OGBench's layout, minari:ID is Minari's local store, and any other name is a
    dataset folder. For example:

      merlin convert buffer.pkl data/push --task FetchPush --variant expert
      merlin convert maze.npz data/maze --phi 0:2
      merlin convert data/push minari:mine/push-v0
      merlin convert data/rooms data/rooms-pixels --pixels
      merlin convert logs/pusht data/pusht --phi 2:5 --about rate=10 units=pixels
    """

    source: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="SOURCE")]
    """Dataset to read: a dataset folder, a .pkl or .npz file, minari:ID, or a robot log (see
    docs/logs.md)."""
    destination: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="DESTINATION")]
    """Dataset to write."""
    task: str | None = None
    """Task of the data, if the data does not name it."""
    variant: str | None = None
    """Kind of data, expert or random, if the data does not name it."""
    columns: LogColumns = NONE
    about: tuple[str, ...] = ()
    """Facts to store with the data, as key=value: rate=10 units=pixels actions=absolute."""
    pixels: bool = False
    """Replace states by images, for tasks that support it; the result is a dataset folder."""
    workers: int | None = None
    """Number of worker processes that render images; by default one per core."""
    overwrite: bool = False
    """Replace an existing destination."""
    json: bool = False
    """Print one JSON object as the last line of stdout."""

    def __call__(self) -> dict[str, Any]:
        from dataclasses import replace

        from merlin.data import describe, load, save_as
        from merlin.data.dataset import LOG
        from merlin.data.formats import check_free, with_task

        task = find(self.task) if self.task else None
        if self.variant is not None:
            check_variant(self.variant, task)
        check_free(self.destination, self.overwrite)
        data = load(self.source, **self.columns.given())
        data = with_task(data, task) if task else data
        data = replace(data, variant=self.variant) if self.variant else data
        if self.about:
            told = dict(_pair(text) for text in self.about)
            log = {**data.provenance.get(LOG, {}), **told}
            data = replace(data, provenance={**data.provenance, LOG: log})
        if self.pixels:
            data = self._film(data)
        save_as(data, self.destination, overwrite=self.overwrite)
        if self.pixels:
            data = load(self.destination)
        if not self.json:
            print(f"{self.destination}: {describe.in_words(data)}")
        return {"source": self.source, "path": self.destination, **describe.describe(data)}

    def _film(self, data: Any) -> Any:
        """The data with images, which are rendered while they are written."""
        from merlin.data.formats import written_as
        from merlin.data.rendering import with_images

        if data.task is None:
            raise MerlinError("--pixels: the data does not name its task; give it with --task.")
        if written_as(self.destination) != "native":
            raise MerlinError(
                f"--pixels: {self.destination} is not a dataset folder; images need one."
            )
        task = choose(data.task, self.task)
        assert task is not None
        return with_images(data, task, workers=self.workers, quiet=False)


def _pair(text: str) -> tuple[str, str | float]:
    key, equals, value = text.partition("=")
    if not (key and equals and value):
        raise MerlinError(f"--about {text}: is not key=value, e.g. --about rate=10.")
    if key != "rate":
        return key, value
    if not re.fullmatch(r"\d{1,6}(\.\d{1,6})?", value) or float(value) == 0:
        raise MerlinError(f"--about {text}: the rate must be a number of steps per second above 0.")
    return key, float(value)
