"""What an engine can do, and the choice between them."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

from merlin.errors import MerlinError
from merlin.io import extras
from merlin.parallel.workers import Function, Pool, default_workers

ENGINES = ("local", "ray")


@runtime_checkable
class Engine(Protocol):
    """Runs jobs side by side. A job is a module-level function whose first argument is a dict
    that the process it runs in keeps from job to job."""

    def map(self, function: Function, arguments: Sequence[tuple]) -> Iterator[Any]:
        """Results in the order of the arguments; the first failure is raised."""
        ...

    def outcomes(
        self, function: Function, arguments: Sequence[tuple], *, attempts: int = 3
    ) -> Iterator[tuple[int, Any]]:
        """Index and result, or `Failure`, of each job as it ends; lost workers are replaced."""
        ...

    def share(self, source: Any, load: Callable[[Any], Any]) -> Any:
        """What to pass as an argument for `load(source)` to be at hand wherever a job runs."""
        ...

    def close(self, grace: float = 5.0) -> None: ...


def check_engine(name: str, workers: int | None, address: str | None) -> None:
    """Complain of what cannot be opened, before anything is written."""
    if name not in ENGINES:
        raise MerlinError(f"engine: {name!r} is not {' or '.join(ENGINES)}.")
    if workers is not None and workers < 1:
        raise MerlinError(f"workers: {workers} is not 1 or more.")
    if name == "local" and address is not None:
        raise MerlinError("address: belongs to --engine ray; leave it out or choose that.")
    if name == "ray":
        extras.check("ray", "engine ray")


def open_engine(
    name: str, *, workers: int | None = None, cores: int = 1, address: str | None = None
) -> Engine:
    """`workers` jobs at a time with so many `cores` each; as many as fit, unless given."""
    check_engine(name, workers, address)
    if name == "local":
        return Pool(workers or max(1, default_workers() // cores), cores)
    from merlin.parallel.ray import Cluster

    return Cluster(workers=workers, cores=cores, address=address)
