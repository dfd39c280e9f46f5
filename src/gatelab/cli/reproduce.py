"""`gatelab demo` and `gatelab reproduce`: the paper's results, measured again.

`gatelab report`: everything that was reproduced, on one page.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gatelab.cli import interrupts, output, sweeps
from gatelab.cli.fit import Jobs
from gatelab.cli.lists import Json
from gatelab.cli.output import check_folder
from gatelab.errors import GatelabError, unknown_name

if TYPE_CHECKING:
    from gatelab.studies import Demo, Study

Out = Annotated[Path, typer.Option(help="The folder for what is written.")]
FOLDER = Path("gatelab-out")
DEMO = "Example: gatelab demo --max-width 20 --store runs.db"
REPRODUCE = """Examples: gatelab reproduce --list

gatelab reproduce scaling/fig2 --store runs.db

gatelab reproduce all --quick --out quick"""


def demo_command(
    out: Out = FOLDER,
    max_width: Annotated[int, typer.Option(min=2, help="Networks of 1 to this many neurons.")] = 50,
    jobs: Jobs = None,
    store: sweeps.Store = None,
    backend: sweeps.Backend = None,
    address: sweeps.Address = None,
    retry_failed: sweeps.RetryFailed = False,
    max_hours: sweeps.MaxHours = None,
    as_json: Json = False,
) -> None:
    """Show how the errors of five units fall, and why."""
    check_folder(out)
    sweep = sweeps.keywords(store, backend, retry_failed, max_hours, address)
    from gatelab.studies import demo as run

    with sweeps.going_on(store), output.progress("fitting") as report:
        done = run(out, widths=range(1, max_width + 1), jobs=jobs, progress=report, sweep=sweep)
    page = _page(done, out, f"gatelab demo --max-width {max_width}")
    rows = done.slopes.to_dict("records")
    if as_json:
        found = {"slopes": rows, "reason": done.reason, "seconds": done.seconds}
        output.document(
            found | {"points": done.scaling.points, "figure": done.figure, "page": page, "files": [*done.files, page]}
        )
        return
    at_last = {p.unit: p.test_rmse for p in done.scaling.points if p.width == max_width}
    output.table(
        ("unit", "slope vs n [95%]", "paper", "slope vs P [95%]", "paper", "ratio", "RMSE"),
        [[str(r["unit"]), *_axis(r, "n"), *_axis(r, "P"), *_end(r, at_last)] for r in rows],
        right=(2, 4, 5, 6),
        wrap=(1, 3),
    )
    output.say("", f"ratio to the limit and RMSE on test data at width {max_width}", "", done.reason, "")
    output.say(f"{done.seconds:.1f} s of computing")
    output.say(str(done.figure), wrap=False)
    output.say(str(page), wrap=False)


def _page(done: Demo, out: Path, command: str) -> Path:
    from gatelab.files import write_whole
    from gatelab.report.builders import demo_page

    return write_whole(out / "demo.html", demo_page(done, command))


def _axis(row: dict[Any, Any], axis: str) -> list[str]:
    slope = output.interval(*(row[f"{what}_{axis}"] for what in ("slope", "low", "high")))
    return [slope, output.number(row[f"paper_{axis}"])]


def _end(row: dict[Any, Any], at_last: dict[str, float]) -> list[str]:
    return [output.number(row["ratio_to_limit"]), output.number(at_last.get(row["unit"]), ".1e")]


def reproduce_command(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME...|all]", help="Names from --list.")] = None,
    every: Annotated[bool, typer.Option("--list", help="Name every figure and what it shows.")] = False,
    out: Out = FOLDER,
    quick: Annotated[bool, typer.Option("--quick", help="Few widths and points, to see that it works.")] = False,
    full: Annotated[bool, typer.Option("--full", help="With all: compute long and done ones too.")] = False,
    jobs: Jobs = None,
    store: sweeps.Store = None,
    backend: sweeps.Backend = None,
    address: sweeps.Address = None,
    retry_failed: sweeps.RetryFailed = False,
    max_hours: sweeps.MaxHours = None,
    as_json: Json = False,
) -> None:
    """Measure the papers' figures again, beside their own numbers.

    `all` skips what this code has written to the folder already, and takes the long studies from the committed records.
    """
    from gatelab.studies import all_studies

    known = {s.name: s for s in all_studies()}
    if every:
        _list(list(known.values()), as_json)
        return
    if not names:
        raise GatelabError("no figure is named; give names from 'gatelab reproduce --list', or all")
    whole = "all" in names
    wanted = list(known) if whole else list(dict.fromkeys(names))
    for name in wanted:
        if name not in known:
            raise unknown_name("study", name, (*known, "all"))
    check_folder(out)
    sweep = sweeps.keywords(store, backend, retry_failed, max_hours, address)
    spare = whole and not full
    with sweeps.going_on(store):
        done, failed = _run([known[name] for name in wanted], out, sweep, spare, quick=quick, jobs=jobs)
    if as_json:
        output.document(done)
    elif whole:
        _overview(done, out)
    else:
        for held in done:
            _print(held)
    if failed:
        said = "; ".join(f"{name}: {error}" for name, error in failed.items())
        raise GatelabError(f"{len(failed)} of {len(wanted)} figures could not be made. {said}")


def _list(found: list[Study], as_json: bool) -> None:
    if as_json:
        output.document([{"name": s.name, "title": s.title, "paper": s.paper, "long": s.long} for s in found])
        return
    output.table(("name", "what it shows"), [(s.name, f"{s.title}. {s.paper}") for s in found], wrap=(1,))


def _run(
    wanted: list[Study], out: Path, sweep: dict[str, Any], spare: bool, **options: Any
) -> tuple[list[dict[str, Any]], dict[str, GatelabError]]:
    """The outcome of each study as it was written; with `spare` not computed again where it is there.

    One that cannot be made, for want of data say, does not keep the others from being made.
    """
    from gatelab.studies import done_before, read_outcome, take_record
    from gatelab.studies import reproduce as run

    done: list[dict[str, Any]] = []
    failed: dict[str, GatelabError] = {}
    began, hours = time.monotonic(), sweep.get("max_hours")
    quick = options["quick"]
    with interrupts.keeping(lambda: _complete(done)):
        for one in wanted:
            if hours is not None:  # for all figures together
                sweep = {**sweep, "max_hours": max(0.0, hours - (time.monotonic() - began) / 3600)}
            held = done_before(one.name, out, quick=quick) if spare else None
            if held is None and spare and one.long and not quick:
                held = take_record(one.name, out)
            if held is None:
                try:
                    with output.progress(one.name) as report:
                        run(one.name, out, progress=report, sweep=sweep, **options)
                except GatelabError as error:
                    failed[one.name] = error
                    continue
                held = read_outcome(out / f"{one.name}.json")
            folder = (out / one.name).parent
            done.append({**held, "files": [folder / file for file in held["files"]]})
    return done, failed


def _complete(done: list[dict[str, Any]]) -> str | None:
    files = [str(file) for held in done for file in held["files"]]
    return f"complete: {', '.join(files)}" if files else None


def _overview(done: list[dict[str, Any]], out: Path) -> None:
    """A line a study: what its claims came to, and where its numbers are from."""
    verdicts = ("reproduced", "exceeded", "differs", "new")
    rows = []
    for held in done:
        found = [claim["verdict"] for claim in held["claims"]]
        how = _recorded(held) or f"{held['seconds']:.1f} s, {held['date'][:10]}"
        rows.append((held["study"], *(str(found.count(verdict) or "") for verdict in verdicts), how))
    output.table(("study", *verdicts, "made"), rows, right=(1, 2, 3, 4), wrap=(5,))
    output.say("", "The page with every figure and every claim:", "")
    output.say(f"gatelab report --out {out}", wrap=False)


def _recorded(held: dict[str, Any]) -> str:
    """Where a committed outcome is from; nothing for one that was computed."""
    return f"record of {held['date'][:10]}, {held['device']}" if held["recorded"] else ""


def _print(held: dict[str, Any]) -> None:
    claims = held["claims"]
    output.say(f"{held['study']}: {held['title']}", held["paper"], "")
    if claims:
        rows = [(c["what"], c["paper"], f"{c['ours']} {c['interval']}".strip(), c["verdict"]) for c in claims]
        output.table(("what", "paper", "ours", "verdict"), rows, wrap=(0, 1, 2))
        output.say("")
    # Claims of one curve share their reason, which is then said once.
    output.points([*(c["because"] for c in claims), *held["notes"]])
    for file in held["files"]:
        output.say(f"wrote {file}", wrap=False)
    output.say(f"{held['seconds']:.1f} s", "")


REPORT = """Examples: gatelab report

gatelab report --out gatelab-out --json"""


def report_command(
    out: Annotated[Path, typer.Option(help="The folder that gatelab reproduce wrote to.")] = FOLDER,
    as_json: Json = False,
) -> None:
    """Make one page of everything that was reproduced."""
    check_folder(out)
    from gatelab.report import build

    made = build(out)
    if as_json:
        output.document({"page": made, "bytes": made.stat().st_size})
        return
    output.say(str(made), wrap=False)
