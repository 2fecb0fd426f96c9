"""merlin play"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro


@dataclass(frozen=True)
class Play:
    """Write an HTML page for exploring trained policies.

    On PointReach and PointRooms the policy runs in the browser: place the goal and the agent, and
    change the horizon. For all other tasks, and for policies that rank or plan (merlin-plus,
    merlin-map, the diffusion methods), the page shows recorded episodes. It needs no server. For
    example:

      merlin play runs/rooms --out rooms.html
      merlin play runs/rooms runs/rooms-expert runs/push --out policies.html
    """

    run: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN [RUN ...]")]
    """Run folders; the page can switch between them."""
    out: Path
    """Page to write, NAME.html; it must not exist."""
    seed: int | None = None
    """Seed of the policies, which every run must have; by default the first seed of each."""
    checkpoint: str = "final"
    """Which policies to show: final, or best (selected by evaluations during training)."""
    episodes: int = 12
    """Number of episodes to record, for policies that do not run in the browser."""
    task: str | None = None
    """Your own environment as module:EnvId, which is imported only if you name it here."""
    overwrite: bool = False
    """Replace an existing --out."""
    json: bool = False
    """Print one JSON object as the last line of stdout."""

    def __call__(self) -> dict[str, Any]:
        from merlin.deploy.play import write_page

        result = write_page(
            self.run,
            self.out,
            seed=self.seed,
            checkpoint=self.checkpoint,
            episodes=self.episodes,
            task=self.task,
            overwrite=self.overwrite,
        )
        if not self.json:
            shown = ", ".join(f"{p['name']} ({p['kind']})" for p in result["policies"])
            print(f"{self.out}: {shown}; {result['bytes'] / 1e6:.1f} MB, open it in a browser.")
        return result
