"""Where jobs run: worker processes of this machine, or a Ray cluster. Same jobs, same results."""

from merlin.engines.base import ENGINES, Engine, open_engine

__all__ = ["ENGINES", "Engine", "open_engine"]
