"""`gatelab demo` and `gatelab reproduce`: the paper's results, measured again."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gatelab.cli import show, sweeps
from gatelab.cli.lists import Json
from gatelab.cli.measure import Jobs
from gatelab.cli.shell import Interrupted
from gatelab.cli.write import check_folder
from gatelab.errors import GatelabError, unknown_name

if TYPE_CHECKING:
    from gatelab.studies import Reproduction, Study

Out = Annotated[Path, typer.Option(help="The folder for what is written.")]
FOLDER = Path("gatelab-out")
DEMO = "Example: gatelab demo --max-width 20 --store runs.db"
REPRODUCE = """Examples: gatelab reproduce --list

gatelab reproduce scaling/fig2 --store runs.db

gatelab reproduce all --quick --format svg"""


def demo(
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

    with sweeps.going_on(store), show.progress("fitting") as report:
        done = run(out, widths=range(1, max_width + 1), jobs=jobs, progress=report, sweep=sweep)
    rows = done.slopes.to_dict("records")
    if as_json:
        found = {"slopes": rows, "reason": done.reason, "seconds": done.seconds}
        show.document(found | {"points": done.scaling.points, "figure": done.figure, "files": done.files})
        return
    at_last = {p.unit: p.test_rmse for p in done.scaling.points if p.width == max_width}
    show.table(
        ("unit", "slope vs n [95%]", "paper", "slope vs P [95%]", "paper", "ratio", "RMSE"),
        [[str(r["unit"]), *_axis(r, "n"), *_axis(r, "P"), *_end(r, at_last)] for r in rows],
        right=(2, 4, 5, 6),
        wrap=(1, 3),
    )
    show.say("", f"ratio to the limit and RMSE on test data at width {max_width}", "", done.reason, "")
    show.say(f"{done.seconds:.1f} s of computing")
    show.say(str(done.figure), wrap=False)


def _axis(row: dict[Any, Any], axis: str) -> list[str]:
    slope = show.interval(*(row[f"{what}_{axis}"] for what in ("slope", "low", "high")))
    return [slope, show.number(row[f"paper_{axis}"])]


def _end(row: dict[Any, Any], at_last: dict[str, float]) -> list[str]:
    return [show.number(row["ratio_to_limit"]), show.number(at_last.get(row["unit"]), ".1e")]


def reproduce(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME...|all]", help="Names from --list.")] = None,
    every: Annotated[bool, typer.Option("--list", help="Name every figure and what it shows.")] = False,
    out: Out = FOLDER,
    quick: Annotated[bool, typer.Option("--quick", help="Few widths and points, to see that it works.")] = False,
    format: Annotated[str, typer.Option(help="png or svg.")] = "png",
    jobs: Jobs = None,
    store: sweeps.Store = None,
    backend: sweeps.Backend = None,
    address: sweeps.Address = None,
    retry_failed: sweeps.RetryFailed = False,
    max_hours: sweeps.MaxHours = None,
    as_json: Json = False,
) -> None:
    """Measure the paper's figures again, beside its own numbers."""
    from gatelab.studies import FORMATS, studies

    known = {s.name: s for s in studies()}
    if every:
        _list(list(known.values()), as_json)
        return
    if not names:
        raise GatelabError("no figure is named; give names from 'gatelab reproduce --list', or all")
    wanted = list(known) if "all" in names else list(dict.fromkeys(names))
    for name in wanted:
        if name not in known:
            raise unknown_name("study", name, (*known, "all"))
    if format not in FORMATS:
        raise unknown_name("figure format", format, FORMATS)
    check_folder(out)
    sweep = sweeps.keywords(store, backend, retry_failed, max_hours, address)
    with sweeps.going_on(store):
        done = _run(wanted, out, sweep, quick=quick, format=format, jobs=jobs)
    if as_json:
        show.document([_record(r) for r in done])
        return
    for r in done:
        _print(r, known[r.study])


def _list(found: list[Study], as_json: bool) -> None:
    if as_json:
        show.document([{"name": s.name, "title": s.title, "paper": s.paper} for s in found])
        return
    show.table(("name", "what it shows"), [(s.name, f"{s.title}. {s.paper}") for s in found], wrap=(1,))


def _run(names: list[str], out: Path, sweep: dict[str, Any], **options: Any) -> list[Reproduction]:
    from gatelab.studies import reproduce as run

    done: list[Reproduction] = []
    began, hours = time.monotonic(), sweep.get("max_hours")
    try:
        for name in names:
            if hours is not None:  # for all figures together
                sweep = {**sweep, "max_hours": max(0.0, hours - (time.monotonic() - began) / 3600)}
            with show.progress(name) as report:
                done.append(run(name, out, progress=report, sweep=sweep, **options))
    except KeyboardInterrupt:
        raise Interrupted([file for r in done for file in r.files]) from None
    return done


def _record(r: Reproduction) -> dict[str, object]:
    return {
        "study": r.study,
        "claims": r.outcome.comparison,
        "notes": r.outcome.notes,
        "files": r.files,
        "seconds": r.seconds,
    }


def _print(r: Reproduction, study: Study) -> None:
    claims = r.outcome.comparison
    show.say(f"{study.name}: {study.title}", study.paper, "")
    if claims:
        rows = [(c.what, c.paper, c.ours, c.verdict) for c in claims]
        show.table(("what", "paper", "ours", "verdict"), rows, wrap=(0, 1, 2))
        show.say("")
    # Claims of one curve share their reason, which is then said once.
    show.points([*(c.because for c in claims), *r.outcome.notes])
    for file in r.files:
        show.say(f"wrote {file}", wrap=False)
    show.say(f"{r.seconds:.1f} s", "")
