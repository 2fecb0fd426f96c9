"""merlin convert"""

from dataclasses import dataclass
from typing import Annotated, Any

import tyro

from merlin.errors import MerlinError
from merlin.tasks.registry import VARIANTS, find


@dataclass(frozen=True)
class Convert:
    """Write a dataset in another format, told by the name of the destination, or as images.

    NAME.pkl is the WGCSL benchmark's buffer, NAME.npz is OGBench's layout, minari:ID goes to
    Minari's local store, and any other name becomes a dataset folder. For example:

      merlin convert buffer.pkl data/push --task FetchPush --variant expert
      merlin convert maze.npz data/maze --phi 0:2
      merlin convert data/push minari:mine/push-v0
      merlin convert data/rooms data/rooms-pixels --pixels
    """

    source: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="SOURCE")]
    """What to read: a dataset folder, a .pkl or .npz file, or minari:ID."""
    destination: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="DESTINATION")]
    """What to write."""
    task: str | None = None
    """Task that the data is from, if it does not say so itself."""
    variant: str | None = None
    """Kind of data, expert or random, if it does not say so itself."""
    phi: str | None = None
    """Part of a state that is its goal, as 0:2 or 0,1,5, if achieved goals are not recorded."""
    pixels: bool = False
    """Replace states by images, for the tasks that have them; the result is a dataset folder."""
    workers: int | None = None
    """Processes that make images; one per core unless given."""
    overwrite: bool = False
    """Replace what is at the destination."""
    json: bool = False
    """Print one JSON object as the last line of stdout."""

    def __call__(self) -> dict[str, Any]:
        from dataclasses import replace

        from merlin.data import describe, load, save_as
        from merlin.data.formats import check_free, with_task

        if self.variant not in (None, *VARIANTS):
            raise MerlinError(f"--variant: {self.variant!r} is not {' or '.join(VARIANTS)}.")
        task = find(self.task) if self.task else None
        check_free(self.destination, self.overwrite)
        data = load(self.source, phi=self.phi)
        data = with_task(data, task) if task else data
        data = replace(data, variant=self.variant) if self.variant else data
        if self.pixels:
            data = self._film(data)
        save_as(data, self.destination, overwrite=self.overwrite)
        if self.pixels:
            data = load(self.destination)
        if not self.json:
            print(f"{self.destination}: {describe.in_words(data)}")
        return {"source": self.source, "path": self.destination, **describe.describe(data)}

    def _film(self, data: Any) -> Any:
        """The data with images, which are made while they are written."""
        from merlin.data.filming import with_images
        from merlin.data.formats import written_as

        if data.task is None:
            raise MerlinError("--pixels: the data names no task; say which with --task.")
        if written_as(self.destination) != "native":
            raise MerlinError(f"--pixels: {self.destination} is no dataset folder; name one.")
        return with_images(data, find(data.task), workers=self.workers, quiet=False)
