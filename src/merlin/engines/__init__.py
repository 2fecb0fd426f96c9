"""Where jobs run: worker processes of this machine, or a Ray cluster. Same jobs, same results."""

from merlin.engines.base import ENGINES, Engine, check_engine, open_engine

__all__ = ["ENGINES", "Engine", "check_engine", "open_engine"]
