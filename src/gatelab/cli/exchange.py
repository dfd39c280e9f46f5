"""Records of a store as the `results` commands need them: found by what users type, told in few words.

`gatelab results export` and `compare`: a store as one table, and two of them side by side.
"""

from __future__ import annotations

import io
import json
import math
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gatelab.cli import output
from gatelab.cli.lists import Json
from gatelab.cli.output import check_file
from gatelab.cli.sweeps import check_store
from gatelab.errors import GatelabError, unknown_name
from gatelab.files import write_whole

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
    from gatelab.feedforward.catalogue import unit_name

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


if TYPE_CHECKING:
    import pandas as pd

    from gatelab.sweep import Record

FORMATS = ("csv", "parquet", "json")
MOST = 50  # runs that exist on one side only and are named to people
EXPORT = """Examples: gatelab results export --out runs.csv

gatelab results export --unit glu --format parquet --out glu.parquet"""
COMPARE = """Examples: gatelab results compare --store a.db --with b.db

gatelab results compare --store a.db --units glu,relu2"""


def export(
    out: Annotated[Path, typer.Option(help="The file to write.")],
    format: Annotated[str | None, typer.Option(help="csv, parquet or json.", show_default="by the file's name")] = None,
    store: StoreFile = STORE,
    status: Status = None,
    unit: UnitName = None,
    width: Width = None,
    problem: ProblemName = None,
    as_json: Json = False,
) -> None:
    """Write records to a file: a row each as CSV or Parquet, all there is of them as JSON."""
    kind = format or out.suffix[1:].lower()
    if format is not None and format not in FORMATS:
        raise unknown_name("format", format, FORMATS)
    check_file(out, [f".{format}"] if format else [f".{known}" for known in FORMATS])
    if kind == "parquet":
        need_pyarrow()
    with opened(store) as file:
        found = selected(file, status, unit, width, problem)
    write_whole(out, _content(found, kind))
    if as_json:
        output.document({"store": store, "records": len(found), "files": [out]})
    else:
        output.say(f"wrote {out}, {records(len(found))}", wrap=False)


def _content(found: list[Record], kind: str) -> bytes:
    if kind == "json":
        return (json.dumps(output.plain([full(r) for r in found]), indent=1, ensure_ascii=False) + "\n").encode()
    table = _table(found)
    if kind == "csv":
        return table.to_csv(index=False).encode()
    into = io.BytesIO()
    table.to_parquet(into, engine="pyarrow", index=False)
    return into.getvalue()


def _table(found: list[Record]) -> pd.DataFrame:
    """A row a record. Columns keep their type where some records lack them; those of several types become text."""
    import pandas as pd

    rows = [record.row() for record in found]
    columns = dict.fromkeys(name for row in rows for name in row) or ("key", "task", "status")
    return pd.DataFrame({name: _column([row.get(name) for row in rows]) for name in columns})


def _column(values: list[Any]) -> Any:
    import pandas as pd

    kinds = {type(v) for v in values if v is not None}
    if kinds == {bool}:
        return pd.array(values, dtype="boolean")
    if kinds == {int} and all(v is None or v.bit_length() < 64 for v in values):
        return pd.array(values, dtype="Int64")
    if float in kinds and kinds <= {int, float}:
        return [math.nan if v is None else float(v) for v in values]
    return pd.array([None if v is None else str(v) for v in values], dtype="string")


def need_pyarrow() -> None:
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise GatelabError("Parquet files need pyarrow; run: pip install pyarrow, or export as csv or json") from None


def compare(
    store: StoreFile = STORE,
    other: Annotated[Path | None, typer.Option("--with", help="Another store with the same runs.")] = None,
    units: Annotated[str | None, typer.Option(metavar="A,B", help="Or two units in the one store.")] = None,
    as_json: Json = False,
) -> None:
    """Set the same runs of two stores, or of two units, side by side."""
    if (other is None) == (units is None):
        raise GatelabError("give what to compare: --with FILE for another store, or --units A,B for two units")
    if other is not None:
        names = (str(store), str(other))
        sides = [_by(_all(path), lambda r: r.key) for path in (store, other)]
    else:
        names = _two(units or "")
        with opened(store) as file:
            sides = [_by(selected(file, None, name), _but_unit) for name in names]
    left, right = sides
    both = [(left[k], right[k]) for k in left if k in right]
    pairs = [(a, b, _differing(a, b)) for a, b in both]
    # Two units always differ: all their pairs are what one wants to see.
    shown = [pair for pair in pairs if pair[2] or units]
    alone = ([left[k] for k in left if k not in right], [right[k] for k in right if k not in left])
    if as_json:
        _document(names, len(both), shown, alone)
    else:
        _print(names, len(both), shown, alone)


Pair = tuple["Record", "Record", list[str]]


def _all(path: Path) -> list[Record]:
    with opened(path) as file:
        return selected(file, None)


def _by(found: Iterable[Record], name: Callable[[Record], str]) -> dict[str, Record]:
    return {name(record): record for record in found}


def _but_unit(record: Record) -> str:
    return json.dumps([record.task, {k: v for k, v in record.arguments.items() if k != "unit"}], sort_keys=True)


def _two(text: str) -> tuple[str, str]:
    names = [name.strip() for name in text.split(",")]
    if len(names) != 2 or not all(names) or names[0] == names[1]:
        raise GatelabError(f"the units are {text!r}; give two names with a comma between, such as --units glu,relu2")
    return names[0], names[1]


def _differing(a: Record, b: Record) -> list[str]:
    """The metrics with different values, or `outcome` where one failed and the other did not."""
    if a.status != b.status:
        return ["outcome"]
    names = dict.fromkeys((*a.metrics, *b.metrics))
    return [name for name in names if not _same(a.metrics.get(name), b.metrics.get(name))]


def _same(a: Any, b: Any) -> bool:
    return a == b or (a != a and b != b)  # NaN is NaN


def _document(names: tuple[str, str], both: int, shown: list[Pair], alone: tuple[list[Record], list[Record]]) -> None:
    rows = [
        {
            "key": [a.key, b.key],
            "arguments": a.arguments,
            "status": [a.status, b.status],
            "differing": differing,
            "metrics": [dict(a.metrics), dict(b.metrics)],
        }
        for a, b, differing in shown
    ]
    only = [[{"key": r.key, "arguments": r.arguments, "status": r.status} for r in side] for side in alone]
    output.document({"sides": names, "in_both": both, "runs": rows, "only": only})


def _print(names: tuple[str, str], both: int, shown: list[Pair], alone: tuple[list[Record], list[Record]]) -> None:
    differ = sum(bool(differing) for *_, differing in shown)
    if shown:
        # Of two units nearly everything differs, which needs no saying.
        same = shown[0][0].key == shown[0][1].key
        cells = []
        for a, b, differing in shown:
            x, y = rmse(a), rmse(b)
            ratio = output.number(y / x) if x and y is not None else "-"
            cells.append([*_run(a, b), _error(a), _error(b), ratio, *([", ".join(differing)] if same else [])])
        headings = ("unit", "problem", "width", "seed", "RMSE 1", "RMSE 2", "2/1", *(["differing"] if same else []))
        output.table(headings, cells, right=(2, 3, 4, 5, 6), wrap=(1, 7) if same else (1,))
        output.say("")
    output.say(f"1 is {names[0]}, 2 is {names[1]}: {both} runs in both, {differ} of them with different metrics")
    for name, side in zip(names, alone, strict=True):
        if side:
            output.say("", f"only in {name}: {len(side)}")
            output.table(
                ("key", "unit", "problem", "width", "seed"),
                [[r.key[:10], *label(r), width_of(r), seed_of(r)] for r in side[:MOST]],
                right=(3, 4),
                wrap=(2,),
            )
            if len(side) > MOST:
                output.say(f"and {len(side) - MOST} more; --json names all")


def _run(a: Record, b: Record) -> list[str]:
    (unit, problem), (other, _) = label(a), label(b)
    return [unit if unit == other else f"{unit}, {other}", problem, width_of(a), seed_of(a)]


def _error(record: Record) -> str:
    return output.number(rmse(record), ".2e") if record.ok else "failed"


def records(count: int) -> str:
    return "1 record" if count == 1 else f"{count} records"
