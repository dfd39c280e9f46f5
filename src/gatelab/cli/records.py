"""Records of a store as the `results` commands need them: found by what users type, told in few words."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gatelab.cli.sweeps import check_store
from gatelab.errors import GatelabError, unknown_name

if TYPE_CHECKING:
    from gatelab.sweep import Record, Store, StoreCheck

STORE = Path("gatelab.db")
StoreFile = Annotated[Path, typer.Option("--store", help="The file that --store of other commands wrote.")]
Status = Annotated[str | None, typer.Option(help="done or failed.")]
UnitName = Annotated[str | None, typer.Option("--unit", help="Of this unit.")]
Width = Annotated[int | None, typer.Option(help="Of this width.")]
ProblemName = Annotated[str | None, typer.Option("--problem", help="Of this problem, by its name or formula.")]


@contextmanager
def opened(path: Path) -> Iterator[Store]:
    """The store in a file that is there: a question must not make one."""
    from gatelab.sweep import Store

    if not path.exists():
        raise GatelabError(
            f"there is no store {path}; give --store FILE, the file that 'gatelab scale ... --store FILE' wrote"
        )
    check_store(path)
    with warnings.catch_warnings(record=True) as messages:
        warnings.simplefilter("always", UserWarning)
        store = Store(path)
    for message in messages:
        note(str(message.message))
    with store:
        yield store


def note(text: str) -> None:
    """A line beside what was asked for, on stderr, so that what is on stdout stays what it is."""
    typer.echo(f"gatelab: {text}", err=True)


def missing_networks(check: StoreCheck, store: Path) -> list[str]:
    """What a store should have and has not, in sentences."""
    lines = []
    if check.missing:
        first = check.missing[0]
        lines.append(
            f"{len(check.missing)} records in {store} say that they have a network, and it is not there (the first is "
            f"{first}); take a whole copy of the store, or prune them and compute them again"
        )
    if check.unknown:
        lines.append(
            f"{check.unknown} records in {store} are from an older gatelab, which kept networks in "
            f"{store.name}.arrays, and their networks are not here; put that folder beside the file, if there is one"
        )
    return lines


def selected(
    store: Store, status: str | None, unit: str | None = None, width: int | None = None, problem: str | None = None
) -> list[Record]:
    """The records that fit every filter, in the order they came."""
    if status not in (None, "done", "failed"):
        raise unknown_name("status", str(status), ("done", "failed"))
    where: dict[str, Any] = {} if width is None else {"width": width}
    if unit is not None:
        where["unit.name"] = _unit(unit)
    if problem is None:
        return list(store.records(status=status, where=where))
    # What was made from a name or a formula keeps that as its recipe; data have the name they were given.
    ways = (where | {"problem.spec": problem.strip()}, where | {"problem.name": problem})
    return [record for way in ways for record in store.records(status=status, where=way)]


def _unit(name: str) -> str:
    """The name under which a unit is kept, which for another name of it is its own."""
    from gatelab.units.catalogue import unit_name

    try:
        return unit_name(name)
    except GatelabError:
        return name  # a unit of the user's own


def find(store: Store, key: str) -> Record:
    """The one record whose key begins so."""
    start = key.strip().lower()
    if not start:
        raise GatelabError("the key is empty; give one from 'gatelab results list', or its beginning")
    whole = store.get(start)
    found = [whole] if whole else [record for record in store.records() if record.key.startswith(start)]
    if not found:
        raise GatelabError(
            f"no key in {store.path} begins with {key!r}; see 'gatelab results list --store {store.path}'"
        )
    if len(found) > 1:
        some = ", ".join(record.key for record in found[:3]) + (", ..." if len(found) > 3 else "")
        raise GatelabError(f"{len(found)} keys in {store.path} begin with {key!r} ({some}); give more of it")
    return found[0]


def label(record: Record) -> list[str]:
    """Unit and problem; of what is no fit, a dash and the task."""
    arguments = record.arguments
    unit, problem = arguments.get("unit"), arguments.get("problem")
    if not isinstance(unit, dict) or not isinstance(problem, dict):
        return ["-", record.task]
    return [str(unit.get("name")), str(problem.get("spec") or problem.get("name"))]


def width_of(record: Record) -> str:
    return str(record.arguments.get("width", "-"))


def seed_of(record: Record) -> str:
    return str(record.arguments.get("seed", "-"))


def rmse(record: Record) -> float | None:
    value = record.metrics.get("test_rmse")
    return value if isinstance(value, float) else None


def brief(record: Record) -> dict[str, Any]:
    """What a list says of a record: all but its history, of a failure the last line."""
    row = full(record)
    del row["history"]
    row["error"] = record.error.strip().splitlines()[-1] if record.error and record.error.strip() else None
    return row


def full(record: Record) -> dict[str, Any]:
    return {
        "key": record.key,
        "task": record.task,
        "status": record.status,
        "arguments": record.arguments,
        "metrics": dict(record.metrics),
        "seconds": record.seconds,
        "device": record.device,
        "time": record.time,
        "versions": dict(record.versions),
        "error": record.error,
        "history": record.history,
    }
