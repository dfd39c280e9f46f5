"""Compute one run, here and now, and make a record of whatever happens."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import platform
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, NamedTuple

from gatelab._version import __version__
from gatelab.errors import GatelabError
from gatelab.sweep.arrays import pack
from gatelab.sweep.plain import decode, encode
from gatelab.sweep.run import Outcome, Record, Run

OUT_OF_MEMORY = "out of memory"
TIME_LIMIT = "time limit"


class Computed(NamedTuple):
    """A record, and the packed arrays that are stored with it."""

    record: Record
    arrays: bytes | None = None


def resolve(task: str) -> Callable[..., Any]:
    """The function behind a dotted name.

    >>> resolve("math:hypot")(3, 4)
    5.0
    >>> resolve("math:hippo")
    Traceback (most recent call last):
        ...
    gatelab.errors.GatelabError: the task 'math:hippo' cannot be found (module 'math' has no attribute 'hippo'); give
    the name of a function at the top of an installed module, as 'package.module:function'
    """
    module, _, name = task.partition(":")
    try:
        found = functools.reduce(getattr, name.split("."), importlib.import_module(module))
    except (ImportError, AttributeError) as error:
        raise GatelabError(
            f"the task {task!r} cannot be found ({error}); give the name of a function at the top of an installed "
            "module, as 'package.module:function'"
        ) from error
    if not callable(found):
        raise GatelabError(f"the task {task!r} is a {type(found).__name__}; give the name of a function")
    return found


def compute(run: Run) -> Computed:
    """Call the task. Whatever it raises ends in the record, except Ctrl-C, which is meant for the sweep.

    >>> compute(Run("builtins:dict", {"rmse": 0.5})).record.metrics
    {'rmse': 0.5}
    >>> compute(Run("builtins:dict.fromkeys", {"rmse": 0.5})).record.error
    'TypeError: dict.fromkeys() takes no keyword arguments'
    """
    began = time.perf_counter()
    try:
        outcome = _outcome(run, resolve(run.task)(**run.arguments))
        arrays = pack(outcome.arrays) if outcome.arrays else None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit too: one run must not end the sweep
        return Computed(failed(run, _describe(error), time.perf_counter() - began))
    seconds = time.perf_counter() - began
    record = Record(
        run, "done", outcome.metrics, outcome.history, None, seconds, versions(), outcome.device, now()
    )  # fmt: skip
    return Computed(record, arrays)


def _outcome(run: Run, returned: object) -> Outcome:
    outcome = Outcome(returned) if isinstance(returned, Mapping) else returned
    if not isinstance(outcome, Outcome):
        raise GatelabError(
            f"the task {run.task!r} returned a {type(returned).__name__}; let it return a dict of metrics or an Outcome"
        )
    # Through its text and back: what is not plain is refused here, where it is this run's fault and no other's, and a
    # record looks the same whether it was just computed or read from a store.
    metrics = decode(encode(dict(outcome.metrics), "metrics"))
    return Outcome(metrics, tuple(map(float, outcome.history)), str(outcome.device), outcome.arrays)


def _describe(error: BaseException) -> str:
    # The first frame is ours and says nothing.
    lines = traceback.format_exception(type(error), error, error.__traceback__ and error.__traceback__.tb_next)
    text = "".join(lines).rstrip()
    # torch has no MemoryError of its own for the processor's memory.
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        return f"{OUT_OF_MEMORY}\n\n{text}"
    return text


def failed(run: Run, error: str, seconds: float = 0.0) -> Record:
    return Record(run, "failed", {}, (), error, seconds, versions(), "cpu", now())


def now() -> str:
    """UTC in ISO 8601, to the microsecond: it also tells two tries of one run apart."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


@functools.cache
def _installed(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def versions() -> dict[str, str]:
    return {"gatelab": __version__, "torch": _installed("torch"), "python": platform.python_version()}


@contextmanager
def one_thread() -> Iterator[None]:
    """One torch thread inside the block, so that workers do not fight for cores; whoever has no torch needs none."""
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
