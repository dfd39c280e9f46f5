"""`RayPool`: runs on a Ray cluster, either a local one or one that is joined by its address."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from gatelab.errors import GatelabError
from gatelab.sweep.processes import Pool
from gatelab.sweep.run import Run
from gatelab.sweep.worker import ONE_THREAD, Computed, compute, one_thread


def require_ray() -> Any:
    """The module `ray`, or an error with the command that installs it."""
    try:
        import ray
    except ImportError as error:
        raise GatelabError(
            "backend='ray' needs Ray, which is not installed; pip install 'gatelab[ray]', or give backend='processes'"
        ) from error
    return ray


def compute_there(run: Run, paths: list[str]) -> Computed:
    """Compute a run in a Ray worker; `paths` is the `sys.path` of the sweep."""
    sys.path.extend(p for p in paths if p not in sys.path)
    with one_thread():
        return compute(run)


class RayPool(Pool):
    """Runs as Ray tasks, each with one CPU and `gpus` GPUs."""

    def __init__(self, jobs: int | None, address: str | None, gpus: float) -> None:
        super().__init__(0)
        self._ray = require_ray()
        self._jobs, self._gpus = jobs, gpus
        self._ours = self._join(address)
        try:
            self._slots = self._count_slots()
        except BaseException:
            self._leave()
            raise
        # The folders of data and checkpoints, which a joined cluster does not know.
        ours = {name: value for name, value in os.environ.items() if name.startswith("GATELAB_")}
        self._task: Callable[..., Any] = self._ray.remote(
            num_cpus=1, num_gpus=gpus, max_retries=0, runtime_env={"env_vars": {**ours, **ONE_THREAD}}
        )(compute_there).remote
        self._paths = [os.path.abspath(p) for p in sys.path]  # noqa: PTH100  (an empty one means the present folder)
        self._tasks: dict[Any, Run] = {}

    def _join(self, address: str | None) -> bool:
        """Connect, and return whether the pool must disconnect at the end."""
        if self._ray.is_initialized():
            present = self._ray.get_runtime_context().gcs_address
            if address not in (None, "auto", "local", present):
                raise GatelabError(
                    f"address is {address!r}, but this process is connected to the Ray cluster at {present}; leave the "
                    "address out, or call ray.shutdown() first"
                )
            return False
        address = address or "local"  # without one Ray would join any cluster that runs on this machine
        options: dict[str, Any] = {"log_to_driver": False, "configure_logging": False, "logging_level": logging.ERROR}
        if address == "local":
            options |= {"num_cpus": self._jobs, "include_dashboard": False}
        try:
            self._ray.init(address, **options)
        except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
            raise GatelabError(
                f"no Ray cluster could be reached at {address!r} ({error}); give the address that `ray start` printed "
                "(and, if it has one, its token by RAY_AUTH_TOKEN_PATH), or none to start a local one"
            ) from error
        return True

    def _count_slots(self) -> int:
        """The number of runs that fit on the cluster at once."""
        resources = self._ray.cluster_resources()
        slots = [self._jobs or 10**6]
        for name, wanted in (("CPU", 1), ("GPU", self._gpus)):
            if wanted > resources.get(name, 0):
                raise GatelabError(
                    f"each run wants {wanted:g} {name}s, but the whole Ray cluster has {resources.get(name, 0):g}; ask "
                    "for less"
                )
            if wanted:
                slots.append(int(resources.get(name, 0) / wanted))
        return min(slots)

    def pending(self) -> int:
        return len(self._todo) + len(self._tasks)

    def _hand_out(self) -> None:
        while self._todo and len(self._tasks) < self._slots:
            run = self._todo.popleft()
            self._tasks[self._task(run, self._paths)] = run

    def _ready(self) -> list[Any]:
        return self._ray.wait(list(self._tasks), num_returns=len(self._tasks), timeout=0)[0]

    def collect(self, timeout: float) -> list[Computed]:
        self._ray.wait(list(self._tasks), num_returns=1, timeout=timeout)
        results: list[Computed] = []
        for ref in self._ready():
            run = self._tasks.pop(ref)
            try:
                results.append(self._ray.get(ref))
            except self._ray.exceptions.RayTaskError as error:
                # Not an error of a run, which would be a record: the worker could not unpickle the run.
                raise GatelabError(
                    f"the workers of the Ray cluster cannot compute ({error.cause}); install the same gatelab, and the "
                    "modules of the tasks, on every node"
                ) from error
            except self._ray.exceptions.RayError as error:
                reason = f"its Ray worker died twice: {type(error).__name__}: {' '.join(str(error).split())}"
                self._retry_or_fail(run, reason, results)
        self._hand_out()
        return results

    def close(self) -> list[Computed]:
        results: list[Computed] = []
        with suppress(Exception):  # the cluster may be gone
            ready = self._ready() if self._tasks else []
            for ref in self._tasks:
                if ref in ready:
                    with suppress(self._ray.exceptions.RayError):
                        results.append(self._ray.get(ref))
                else:
                    self._ray.cancel(ref, force=True)
        self._tasks.clear()
        self._todo.clear()
        self._leave()
        return results

    def _leave(self) -> None:
        if self._ours:
            self._ray.shutdown()
