"""Options that say what the columns of a robot log are."""

from dataclasses import asdict, dataclass
from typing import Any

import tyro


@dataclass(frozen=True)
class ColumnOptions:
    """Which columns of a log are state, action and goal."""

    phi: str | None = None
    """Part of a state that is its goal, as 0:2 or 0,1,5, if achieved goals are not recorded. Of a
    robot log also names of its dimensions, or of another column that holds the goals."""
    state: str | None = None
    """Columns of a robot log that are the state, by name or index: observation.state, or x,y, or
    0:5; looked for by the usual names unless given."""
    action: str | None = None
    """Columns of a robot log that are the action, likewise."""
    episode: str | None = None
    """Column that tells the episode, of a log that is one table."""
    image_size: int | None = None
    """Height and width in pixels that a LeRobot video is scaled to, if --state names one; 64 unless
    given."""

    def given(self) -> dict[str, Any]:
        """What is said, as `merlin.load` takes it."""
        return {name: value for name, value in asdict(self).items() if value is not None}


LogColumns = tyro.conf.OmitArgPrefixes[ColumnOptions]
NONE = ColumnOptions()
