"""Options that map the columns of a robot log to states, actions and goals."""

from dataclasses import asdict, dataclass
from typing import Any

import tyro


@dataclass(frozen=True)
class ColumnOptions:
    """Which columns of a robot log are the state, the action and the goal."""

    phi: str | None = None
    """Part of the state that is the achieved goal, as 0:2 or 0,1,5, if achieved goals are not
    recorded. For a robot log also names of dimensions, or of a column that holds the goals."""
    state: str | None = None
    """Columns of a robot log that form the state, by name or index: observation.state, or x,y, or
    0:5; by default the usual names are tried."""
    action: str | None = None
    """Columns of a robot log that form the action, in the same notation."""
    episode: str | None = None
    """Column with the episode number, for a log that is a single table."""
    image_size: int | None = None
    """Height and width in pixels to scale a LeRobot video to, if --state names one; by default
    64."""

    def given(self) -> dict[str, Any]:
        """The options that were given, as keyword arguments of `merlin.load`."""
        return {name: value for name, value in asdict(self).items() if value is not None}


LogColumns = tyro.conf.OmitArgPrefixes[ColumnOptions]
NONE = ColumnOptions()
