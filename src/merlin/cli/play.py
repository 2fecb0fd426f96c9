"""merlin play"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro


@dataclass(frozen=True)
class Play:
    """Make a page in which trained policies can be played with.

    In 2-D tasks the policy runs in the browser: place goal and agent, change the horizon. Of other
    tasks the page shows recorded episodes. It needs no server. For example:

      merlin play runs/rooms --out rooms.html
      merlin play runs/rooms runs/rooms-expert runs/push --out policies.html
    """

    run: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN [RUN ...]")]
    """Run folders; the page can switch between them."""
    out: Path
    """The page to write, NAME.html; it must not exist yet."""
    seed: int | None = None
    """Whose policies: a seed that every run has, the first of each unless given."""
    checkpoint: str = "final"
    """Which policies: final, or best (chosen by evaluations during training)."""
    episodes: int = 12
    """How many to record, where the task is not 2-D."""
    task: str | None = None
    """module:EnvId of your own, which is only imported if you name it here."""
    overwrite: bool = False
    """Replace what is at --out."""
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
