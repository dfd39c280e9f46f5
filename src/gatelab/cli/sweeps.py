"""What the commands that compute share: where fits are kept, who computes them, and how to go on after Ctrl-C."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gatelab.cli import interrupts, output
from gatelab.display import duration
from gatelab.errors import GatelabError, unknown_name

if TYPE_CHECKING:
    from gatelab.sweep import Plan, Run

Store = Annotated[Path | None, typer.Option(help="Keep every fit here; the same command computes what is missing.")]
Backend = Annotated[
    str | None, typer.Option(help="serial, processes or ray.", show_default="processes, with one job serial")
]
Address = Annotated[str | None, typer.Option(help="A Ray cluster.", show_default="a local one")]
RetryFailed = Annotated[bool, typer.Option("--retry-failed", help="Try again what failed, by the store.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what is done and to do; compute nothing.")]
MaxHours = Annotated[float | None, typer.Option(help="Begin nothing new after that.", show_default="no limit")]


def keywords(
    store: Path | None,
    backend: str | None,
    retry_failed: bool = False,
    max_hours: float | None = None,
    address: str | None = None,
) -> dict[str, Any]:
    """The options as arguments of `gatelab.scaling_laws`, without those that were not given."""
    from gatelab.sweep import BACKENDS

    if backend is not None and backend not in BACKENDS:
        raise unknown_name("backend", backend, BACKENDS)
    if address is not None and backend != "ray":
        raise GatelabError(f"the address {address!r} is that of a Ray cluster; give --backend ray with it")
    if retry_failed and store is None:
        raise GatelabError("--retry-failed needs to know what failed; give --store FILE, the file that knows")
    if store is not None:
        check_store(store)
    if max_hours is not None and not max_hours > 0:
        raise GatelabError(f"--max-hours is {max_hours:g}; give a positive number of hours, such as 0.5")
    given = {"store": store, "backend": backend, "retry_failed": retry_failed or None, "max_hours": max_hours}
    return {name: value for name, value in (given | {"address": address}).items() if value is not None}


def check_store(store: Path) -> None:
    if store.is_dir():
        raise GatelabError(f"{store} is a folder; give the path of a file in it, such as {store / 'runs.db'}")


def planned(runs: Sequence[Run], store: Path | None, *, retry_failed: bool = False, jobs: int = 1) -> Plan:
    """What is done and to do. A store that is not there yet is not made for the question."""
    from gatelab.sweep import plan

    return plan(runs, store if store and store.exists() else None, retry_failed=retry_failed, jobs=jobs)


def print_plan(found: Plan, store: Path | None, as_json: bool) -> None:
    if as_json:
        row = {"done": found.done, "failed": found.failed, "todo": found.todo}
        output.document(row | {"expected_seconds": found.expected_seconds, "store": store})
        return
    expected = found.expected_seconds
    output.pairs(
        [
            ("done", str(found.done)),
            ("failed", str(found.failed)),
            ("to do", str(found.todo)),
            ("expected time", "not known yet" if expected is None else duration(expected)),
        ]
    )
    if found.failed:
        output.say("", "failed ones stay so without --retry-failed; to see why:")
        output.say(how_to_look(store), wrap=False)


def how_to_look(store: Path | None) -> str:
    return f"gatelab results list --status failed --store {store}"


def cores() -> int:
    from joblib import cpu_count

    return cpu_count()


@contextmanager
def going_on(store: Path | None, runs: Callable[[], Sequence[Run]] | None = None) -> Iterator[None]:
    """Ctrl-C inside says what the store holds, and that the same command goes on from there."""
    with interrupts.keeping(lambda: None if store is None else _kept(store, runs)):
        yield


def _kept(store: Path, runs: Callable[[], Sequence[Run]] | None) -> str | None:
    from gatelab.sweep import Store as Opened

    if not store.exists():
        return None
    try:
        if runs:
            found = planned(runs(), store)
            kept = found.done + found.failed
            count = f"{kept} of {kept + found.todo} fits are"
        else:
            with Opened(store) as opened:
                kept = opened.count()
            count = "1 fit is" if kept == 1 else f"{kept} fits are"
    except GatelabError:
        count = "what was done is"  # the end of a command is no place for a second complaint
    return f"{count} in {store}; the same command goes on"
