"""The interface of engines, and how one is selected."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

from merlin.errors import MerlinError
from merlin.io import extras
from merlin.parallel.workers import Function, Pool, default_workers

ENGINES = ("local", "ray")


@runtime_checkable
class Engine(Protocol):
    """Runs jobs in parallel.

    A job is a module-level function. Its first argument is a dict that its worker process keeps
    from one job to the next.
    """

    def map(self, function: Function, arguments: Sequence[tuple]) -> Iterator[Any]:
        """Yield results in the order of the arguments; raise the first failure."""
        ...

    def outcomes(
        self, function: Function, arguments: Sequence[tuple], *, attempts: int = 3
    ) -> Iterator[tuple[int, Any]]:
        """Yield index and result (or `Failure`) of each job as it ends; replace lost workers."""
        ...

    def share(self, source: Any, load: Callable[[Any], Any]) -> Any:
        """An argument for jobs that gives them access to `load(source)`."""
        ...

    def close(self, grace: float = 5.0) -> None: ...


def check_engine(name: str, workers: int | None, address: str | None) -> None:
    """Refuse an engine that cannot be opened, before anything is written."""
    if name not in ENGINES:
        raise MerlinError(f"engine: {name!r} is unknown; choose {' or '.join(ENGINES)}.")
    if workers is not None and workers < 1:
        raise MerlinError(f"workers: {workers} is below 1; give 1 or more.")
    if name == "local" and address is not None:
        raise MerlinError("address: applies only to `engine='ray'`; add that, or omit `address`.")
    if name == "ray":
        extras.check("ray", "engine ray")


def open_engine(
    name: str, *, workers: int | None = None, cores: int = 1, address: str | None = None
) -> Engine:
    """Run `workers` jobs at a time with `cores` cores each (default: as many as fit)."""
    check_engine(name, workers, address)
    if name == "local":
        return Pool(workers or max(1, default_workers() // cores), cores)
    from merlin.parallel.ray import Cluster

    return Cluster(workers=workers, cores=cores, address=address)
