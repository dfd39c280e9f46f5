"""`gatelab results`: the contents of a store, for people and for programs."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from gatelab._version import __version__
from gatelab.cli import output
from gatelab.cli.options import Application, option, out_option
from gatelab.display import counted
from gatelab.errors import GatelabError
from gatelab.feedforward.named import unit_name
from gatelab.files import write_whole

if TYPE_CHECKING:
    from gatelab.sweep import Record, Store

STORE = Path("gatelab.db")
StoreFile = Annotated[Path, option("The file that --store of other commands wrote.", "--store", metavar="FILE")]
SHORT = 10  # characters of a key: enough to be unique among some thousands
LIST = """Examples: gatelab results list --unit glu --width 50
gatelab results list --status failed --store runs.db"""
SHOW = """Examples: gatelab results show 3f8a --store runs.db
gatelab results show 3f8a --out net.safetensors"""
PRUNE = """Examples: gatelab results prune --failed --dry-run
gatelab results prune --older-than 90 --other-versions --yes"""
EXPORT = """Examples: gatelab results export --out runs.csv
gatelab results export --unit glu --out glu.parquet"""

app = Application(
    name="results",
    help="List, show, export and prune the records of a store.",
    epilog="Example: gatelab results list --store runs.db",
    no_args_is_help=True,
)


@dataclass(frozen=True)
class RecordOptions:
    """A store, and conditions on its records."""

    store: StoreFile = STORE
    status: Annotated[str | None, option("done or failed.")] = None
    unit: Annotated[str | None, option("Of this unit.", "--unit")] = None
    width: Annotated[int | None, option("Of this width.")] = None
    problem: Annotated[str | None, option("Of this problem, by its name or formula.", "--problem")] = None

    def select(self) -> list[Record]:
        """The records that meet every condition, in the order of the store."""
        unit = self.unit
        with suppress(GatelabError):  # names of user units stay
            unit = unit_name(unit or "")
        given = {"width": self.width, "unit.name": unit}
        where: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        filters = [where]
        if self.problem is not None:
            # Problems by name or formula have that as their recipe; data have a name.
            filters = [where | {"problem.spec": self.problem.strip()}, where | {"problem.name": self.problem}]
        with opened(self.store) as store:
            found = [store.records(status=cast("Any", self.status), where=where) for where in filters]
            return [record for records in found for record in records]


def opened(path: Path) -> Store:
    from gatelab.sweep import Store

    if not path.exists():
        raise GatelabError(
            f"the store {path} does not exist; give --store FILE, the file that 'gatelab scale ... --store FILE' wrote"
        )
    return Store(path)


# ---- the commands


@app.command("list", epilog=LIST)
def list_command(
    *,
    options: RecordOptions,
    limit: Annotated[int, option("Maximal number.", min=1)] = 20,
) -> None:
    """List records, the newest first."""
    store = options.store
    records = sorted(options.select(), key=lambda r: r.time, reverse=True)
    rows, documents = [], []
    for r in records[:limit]:
        rows.append({"key": r.key[:SHORT], **run_row(r), "s": r.seconds, "time (UTC)": r.time[:16].replace("T", " ")})
        last_line = [None, *(r.error or "").strip().splitlines()][-1]
        documents.append(facts_of(r) | {"error": last_line})
    total = f"{len(rows)} of {counted(len(records), 'record')}"
    if failed := sum(not r.ok for r in records):
        total += f", of which {failed} failed"
    parts = [output.table(rows, {"s": ".2f"}), "", total]
    if not records:
        parts = [f"no record in {store} fits"]
    output.emit({"store": store, "total": len(records), "records": documents}, *parts)


@app.command("show", epilog=SHOW)
def show_command(
    key: Annotated[str, typer.Argument(help="A key from `gatelab results list`; its beginning is enough.")],
    store: StoreFile = STORE,
    out: Annotated[Path | None, out_option("Write its network, .safetensors.", ".safetensors")] = None,
) -> None:
    """Show everything about one record, with its traceback if it failed."""
    with opened(store) as file:
        record = find(file, key)
        shapes = {name: list(a.shape) for name, a in (file.get_arrays(record.key) or {}).items()}
        if out:
            file.save_arrays(record.key, out)
    row = {name: value and str(value) for name, value in record.row().items()}  # numbers with all their digits
    error = row.pop("error")
    if record.history:
        row["history"] = f"{len(record.history)} values, {record.history[0]:.3e} to {record.history[-1]:.3e}"
    if shapes:
        row["network"] = ", ".join(f"{name} {'x'.join(map(str, s)) or '1'}" for name, s in shapes.items())
    parts = [output.pairs(row.items())]
    if error:
        parts += ["", str(error).rstrip()]
    output.emit({**facts_of(record), "history": record.history, "arrays": shapes}, *parts, files=(out,))


@app.command("prune", epilog=PRUNE)
def prune_command(
    store: StoreFile = STORE,
    failed: Annotated[bool, option("Failed records.", "--failed")] = False,
    older_than: Annotated[float | None, option("Records older than this.", metavar="DAYS", min=0)] = None,
    other_versions: Annotated[bool, option("Records of other versions.", "--other-versions")] = False,
    dry_run: Annotated[bool, option("Count the records; remove none.", "--dry-run")] = False,
    yes: Annotated[bool, option("Remove them.", "--yes")] = False,
) -> None:
    """Remove the records that meet every condition, permanently."""
    if not (failed or other_versions or older_than is not None):
        raise GatelabError("no condition is given; give --failed, --older-than DAYS or --other-versions")
    with opened(store) as file:
        found, removed = file.records(status="failed" if failed else None), 0
        if older_than is not None:  # datetime cannot count back further than this
            before = (datetime.now(UTC) - timedelta(days=min(older_than, 365_000.0))).isoformat()
            found = (r for r in found if r.time < before)
        records = [r for r in found if not other_versions or r.versions.get("gatelab") != __version__]
        if records and not dry_run:
            if not yes:
                count = counted(len(records), "record")
                raise GatelabError(f"{count} would be removed from {store} permanently; give --yes to do it")
            removed = file.delete({r.key for r in records})
        left = file.count()
    line = f"{counted(removed, 'record')} removed from {store}, {left} left"
    if dry_run:
        line = f"{counted(len(records), 'record')} would be removed from {store}, {left - len(records)} would be left"
    output.emit({"store": store, "found": len(records), "removed": removed, "left": left}, line)


@app.command("export", epilog=EXPORT)
def export_command(
    *,
    out: Annotated[Path, out_option("Write the records, .csv, .parquet or .json.", ".csv", ".parquet", ".json")],
    options: RecordOptions,
) -> None:
    """Write records to a file: one row each as CSV or Parquet, complete as JSON."""
    from gatelab.sweep.run import records_table

    records = options.select()
    if out.suffix.lower() == ".json":
        from gatelab.plain import to_plain

        documents = to_plain([{**facts_of(r), "history": r.history} for r in records])
        write_whole(out, json.dumps(documents, indent=1, ensure_ascii=False) + "\n")
    else:
        output.write_frame(out, records_table(records))
    output.emit({"store": options.store, "records": len(records)}, counted(len(records), "record"), files=(out,))


# ---- records in words


def find(store: Store, key: str) -> Record:
    """The record whose key has this beginning."""
    start = key.strip().lower()
    if start and (exact := store.get(start)) is not None:
        return exact
    records = [record for record in store.records() if start and record.key.startswith(start)]
    if not records:
        raise GatelabError(
            f"no key in {store.path} begins with {key!r}; see 'gatelab results list --store {store.path}'"
        )
    if len(records) > 1:
        keys = ", ".join([*(record.key for record in records[:3]), "..."][: len(records)])
        raise GatelabError(f"{len(records)} keys in {store.path} begin with {key!r} ({keys}); give more of it")
    return records[0]


def run_row(record: Record) -> dict[str, Any]:
    """Unit, problem, width, seed and test error; for other tasks a dash and the task."""
    arguments = record.arguments
    unit, problem = arguments.get("unit"), arguments.get("problem")
    row = {"unit": None, "problem": record.task}
    if isinstance(unit, dict) and isinstance(problem, dict):
        row = {"unit": unit.get("name"), "problem": problem.get("spec") or problem.get("name")}
    error = output.cell(record.metrics.get("test_rmse"), ".2e") if record.ok else "failed"
    return {**row, "width": arguments.get("width"), "seed": arguments.get("seed"), "RMSE": error}


FACTS = ("key", "task", "status", "arguments", "metrics", "seconds", "device", "time", "versions", "error")


def facts_of(record: Record) -> dict[str, Any]:
    return {name: getattr(record, name) for name in FACTS}
