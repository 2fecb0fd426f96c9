"""Jobs as Ray tasks, on a running cluster or on a local one.

Ray is an optional extra. Shared data is put into the object store once; every node fetches it once,
and its processes map it into memory. Ray itself retries tasks whose worker was lost.
"""

import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from merlin.errors import MerlinError
from merlin.parallel.workers import Failure, Function, in_order, limits, run_job, value_of

_memory: dict[str, Any] = {}  # kept by a worker from one job to the next


class Cluster:
    """An engine on Ray. Closing it stops a local cluster, but not a remote one."""

    def __init__(self, *, workers: int | None, cores: int, address: str | None):
        import ray

        self._ray, self._cores = ray, cores
        environment = {**limits(cores), "PYTHONPATH": os.pathsep.join(sys.path)}
        settings: dict[str, Any] = {
            "runtime_env": {"env_vars": environment},
            "logging_level": logging.ERROR,
            "log_to_driver": False,
            "include_dashboard": False,
        }
        if address is None:
            count = (os.cpu_count() or 1) if workers is None else workers * cores
            settings |= {"num_cpus": count, "address": "local"}
        else:
            settings |= {"address": address}
            del settings["include_dashboard"]
        try:
            ray.init(**settings)
        except (ConnectionError, ValueError) as error:
            where = address or "a local cluster"
            raise MerlinError(
                f"address: cannot reach Ray at {where} ({_first_line(error)}); check `address`."
            ) from None
        self._limit = workers

    def share(self, source: Any, load: Callable[[Any], Any]) -> Any:
        """Put the loaded data into the object store; jobs map it instead of copying it."""
        return self._ray.put(load(source))

    def map(self, function: Function, arguments: Sequence[tuple]) -> Iterator[Any]:
        outcomes = self.outcomes(function, arguments)
        return in_order((index, value_of(outcome)) for index, outcome in outcomes)

    def outcomes(
        self, function: Function, arguments: Sequence[tuple], *, attempts: int = 3
    ) -> Iterator[tuple[int, Any]]:
        ray = self._ray
        task = ray.remote(num_cpus=self._cores, max_retries=attempts - 1)(_job)
        waiting = list(enumerate(arguments))[::-1]
        running: dict[Any, int] = {}
        while waiting or running:
            while waiting and (self._limit is None or len(running) < self._limit):
                index, values = waiting.pop()
                running[task.remote(function, *values)] = index
            ready, _ = ray.wait(list(running), num_returns=1)
            index = running.pop(ready[0])
            try:
                kind, value = ray.get(ready[0])
            except (
                ray.exceptions.RayError
            ) as error:  # the worker died, and all attempts are used up
                yield index, Failure(f"Ray lost the job ({_first_line(error)}).", str(error))
                continue
            yield index, value if kind == "ok" else Failure(*value)

    def close(self, grace: float = 5.0) -> None:
        self._ray.shutdown()


def _job(function: Function, *arguments: Any) -> tuple[str, Any]:
    """Run a job in a Ray worker as in a local worker process."""
    return run_job(function, _memory, arguments)


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
