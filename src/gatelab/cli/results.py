"""`gatelab results`: what a store holds, for people and for programs."""

from __future__ import annotations

import sys
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from gatelab._version import __version__
from gatelab.cli import exchange, output
from gatelab.cli.exchange import (
    STORE,
    ProblemName,
    Status,
    StoreFile,
    UnitName,
    Width,
    brief,
    find,
    full,
    label,
    missing_networks,
    note,
    opened,
    rmse,
    seed_of,
    selected,
    width_of,
)
from gatelab.cli.lists import Json
from gatelab.cli.output import check_file, check_folder
from gatelab.errors import GatelabError

SHORT = 10  # characters of a key: enough to be unique among some thousands
LIST = """Examples: gatelab results list --unit glu --width 50

gatelab results list --status failed --store runs.db"""
SHOW = """Examples: gatelab results show 3f8a --store runs.db

gatelab results show 3f8a --save net.safetensors"""
PRUNE = """Examples: gatelab results prune --failed --dry-run

gatelab results prune --older-than 90 --other-versions --yes"""

LOST = {
    "missing": "the record says that it has one, and the store has none",
    "unknown": "not here: the record is from an older gatelab, which kept networks in a folder beside the store",
}

app = typer.Typer(
    name="results",
    help="List, show, check, copy, export, compare and prune what a store holds.",
    epilog="Example: gatelab results list --store runs.db",
    no_args_is_help=True,
)


@app.command("list", epilog=LIST)
def list_(
    store: StoreFile = STORE,
    status: Status = None,
    unit: UnitName = None,
    width: Width = None,
    problem: ProblemName = None,
    limit: Annotated[int, typer.Option(min=1, help="How many at most.")] = 20,
    as_json: Json = False,
) -> None:
    """List records, the newest first."""
    with opened(store) as file:
        found = selected(file, status, unit, width, problem)
        for line in missing_networks(file.networks(), store):
            note(line)
    found.sort(key=lambda r: r.time, reverse=True)
    first = found[:limit]
    if as_json:
        output.document({"store": store, "total": len(found), "records": [brief(r) for r in first]})
        return
    if not found:
        output.say(f"no record in {store} fits")
        return
    cells = []
    for r in first:
        error = output.number(rmse(r), ".2e") if r.ok else "failed"
        when = r.time[:16].replace("T", " ")
        cells.append([r.key[:SHORT], *label(r), width_of(r), seed_of(r), error, f"{r.seconds:.2f}", when])
    headings = ("key", "unit", "problem", "width", "seed", "RMSE", "s", "time (UTC)")
    output.table(headings, cells, right=(3, 4, 5, 6), wrap=(2,))
    failed = sum(not r.ok for r in found)
    output.say(
        "", f"{len(first)} of {exchange.records(len(found))}" + (f", of which {failed} failed" if failed else "")
    )


@app.command("show", epilog=SHOW)
def show_(
    key: Annotated[str, typer.Argument(help="A key from `gatelab results list`; its beginning is enough.")],
    store: StoreFile = STORE,
    save: Annotated[Path | None, typer.Option(help="Write its network, .safetensors.")] = None,
    as_json: Json = False,
) -> None:
    """Show everything about one record, with its traceback if it failed."""
    check_file(save, (".safetensors",))
    with opened(store) as file:
        record = find(file, key)
        state = file.network_state(record.key)
        # The rest of a record is shown also where its network is lost.
        arrays = (file.get_arrays(record.key) or {}) if state == "stored" else {}
        if save:
            file.save_arrays(record.key, save)
    shapes = {name: list(a.shape) for name, a in arrays.items()}
    if as_json:
        output.document(full(record) | {"network": state, "arrays": shapes, "files": [save] if save else []})
        return
    row = record.row()
    error = row.pop("error")
    rows = [(name, output.text(value)) for name, value in row.items()]
    if record.history:
        rows.append(("history", f"{len(record.history)} values, {record.history[0]:.3e} to {record.history[-1]:.3e}"))
    if shapes:
        rows.append(("network", ", ".join(f"{name} {'x'.join(map(str, s)) or '1'}" for name, s in shapes.items())))
    if state in ("missing", "unknown"):
        rows.append(("network", LOST[state]))
    output.pairs(rows)
    if error:
        output.say("", str(error).rstrip())
    if save:
        output.say(f"wrote {save}", wrap=False)


@app.command("prune", epilog=PRUNE)
def prune(
    store: StoreFile = STORE,
    failed: Annotated[bool, typer.Option("--failed", help="Those that failed.")] = False,
    older_than: Annotated[float | None, typer.Option(metavar="DAYS", min=0, help="Those older than that.")] = None,
    other_versions: Annotated[bool, typer.Option("--other-versions", help="Those of another gatelab.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count them; remove nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Remove records for good: those to which every condition given applies."""
    if not (failed or other_versions or older_than is not None):
        raise GatelabError("no condition is given; give --failed, --older-than DAYS or --other-versions")
    before = None if older_than is None else (datetime.now(UTC) - timedelta(days=older_than)).isoformat()
    with opened(store) as file:
        keys = [
            r.key
            for r in file.records(status="failed" if failed else None)
            if (before is None or r.time < before) and (not other_versions or r.versions.get("gatelab") != __version__)
        ]
        remove = bool(keys) and not dry_run and (yes or _confirmed(len(keys), store))
        removed = file.delete(keys) if remove else 0
        left = file.count()
    if as_json:
        output.document({"store": store, "found": len(keys), "removed": removed, "left": left})
    elif dry_run:
        output.say(f"{exchange.records(len(keys))} would be removed from {store}, {left - len(keys)} would be left")
    else:
        output.say(f"{exchange.records(removed)} removed from {store}, {left} left")


def _confirmed(count: int, store: Path) -> bool:
    if not _on_terminal():
        raise GatelabError(f"{exchange.records(count)} would be removed from {store} for good; give --yes to do it")
    return typer.confirm(f"Remove {exchange.records(count)} from {store} for good?", err=True)


def _on_terminal() -> bool:
    return sys.stdin.isatty()


@app.command("check", epilog="Example: gatelab results check --store runs.db")
def check(store: StoreFile = STORE, as_json: Json = False) -> None:
    """Read a store whole: is the file sound, is every network there? The exit code is 1 where something is not."""
    with opened(store) as file:
        report = file.check()
    wrong = [*(f"{store} is damaged: {text}" for text in report.damage), *missing_networks(report, store)]
    if as_json:
        output.document({"store": store, "sound": not wrong, **asdict(report)})
    else:
        counts = f"{exchange.records(report.records)}, of which {report.failed} failed, and {report.networks} networks"
        output.say(f"{store}: {counts}")
        output.points(wrong or ["the file is sound, and every network is there"])
    if wrong:
        raise typer.Exit(1)


@app.command("copy", epilog="Example: gatelab results copy runs.db saved.db")
def copy(
    store: Annotated[Path, typer.Argument(metavar="FROM", help="The store.")],
    to: Annotated[Path, typer.Argument(metavar="TO", help="A new file.")],
    as_json: Json = False,
) -> None:
    """Copy a store, whole, also while sweeps write to it."""
    check_folder(to.parent)
    with opened(store) as file, output.progress("copying") as progress:
        file.copy(to, progress)
    with opened(to) as whole:
        total, networks = whole.count(), whole.networks().networks
    if as_json:
        output.document({"store": store, "records": total, "networks": networks, "files": [to]})
    else:
        output.say(f"wrote {to}, {exchange.records(total)} and {networks} networks", wrap=False)


app.command("export", epilog=exchange.EXPORT)(exchange.export)
app.command("compare", epilog=exchange.COMPARE)(exchange.compare)
