"""`gatelab demo`, `gatelab reproduce` and `gatelab report`: the papers' results, measured again, and a page of them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gatelab.cli import interrupts, output
from gatelab.cli.options import Json, SweepOptions, grouped
from gatelab.cli.output import check_folder
from gatelab.errors import GatelabError, unknown_name
from gatelab.files import write_whole

if TYPE_CHECKING:
    from gatelab.studies import Study

Out = Annotated[Path, typer.Option(help="The folder for what is written.")]
FOLDER = Path("gatelab-out")
DEMO = "Example: gatelab demo --max-width 20 --store runs.db"
REPRODUCE = """Examples: gatelab reproduce --list

gatelab reproduce scaling/fig2 --store runs.db

gatelab reproduce all --quick --out quick"""
REPORT = """Examples: gatelab report

gatelab report --out gatelab-out --json"""


@grouped
def demo_command(
    *,
    out: Out = FOLDER,
    max_width: Annotated[int, typer.Option(min=2, help="Networks of 1 to this many neurons.")] = 50,
    sweep: SweepOptions,
    as_json: Json = False,
) -> None:
    """Show how the errors of five units fall, and why."""
    check_folder(out)
    keywords = sweep.keywords()
    from gatelab.report.builders import demo_page
    from gatelab.studies import demo

    with sweep.resumable(), output.progress("fitting") as report:
        study = demo(out, widths=range(1, max_width + 1), jobs=sweep.jobs, progress=report, sweep=keywords)
    page = write_whole(out / "demo.html", demo_page(study, f"gatelab demo --max-width {max_width}"))
    rows = study.slopes.to_dict("records")
    if as_json:
        output.document(
            {
                "slopes": rows,
                "reason": study.reason,
                "seconds": study.seconds,
                "points": study.scaling.points,
                "figure": study.figure,
                "page": page,
                "files": [*study.files, page],
            }
        )
        return
    errors = {p.unit: p.test_rmse for p in study.scaling.points if p.width == max_width}
    table = []
    for row in rows:
        cells = [str(row["unit"])]
        for axis in ("n", "P"):
            slope = output.interval(*(row[f"{name}_{axis}"] for name in ("slope", "low", "high")))
            cells += [slope, output.number(row[f"paper_{axis}"])]
        cells += [output.number(row["ratio_to_limit"]), output.number(errors.get(row["unit"]), ".1e")]
        table.append(cells)
    headings = ("unit", "slope vs n [95%]", "paper", "slope vs P [95%]", "paper", "ratio", "RMSE")
    output.table(headings, table, right=(2, 4, 5, 6), wrap=(1, 3))
    output.say("", f"ratio to the limit and RMSE on test data at width {max_width}", "", study.reason, "")
    output.say(f"{study.seconds:.1f} s of computing")
    output.say(str(study.figure), wrap=False)
    output.say(str(page), wrap=False)


@grouped
def reproduce_command(
    *,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME...|all]", help="Names from --list, or patterns such as 'ntk/*'."),
    ] = None,
    every: Annotated[bool, typer.Option("--list", help="Name every figure and what it shows.")] = False,
    out: Out = FOLDER,
    quick: Annotated[bool, typer.Option("--quick", help="Few widths and points, to see that it works.")] = False,
    full: Annotated[bool, typer.Option("--full", help="With all: compute long and done ones too.")] = False,
    sweep: SweepOptions,
    as_json: Json = False,
) -> None:
    """Measure the papers' figures again, beside their own numbers.

    `all` skips what this code has written to the folder already, and takes the long studies from the committed records.
    """
    from gatelab.studies import all_studies

    known = {s.name: s for s in all_studies()}
    if every:
        if as_json:
            output.document(
                [{name: getattr(s, name) for name in ("name", "title", "paper", "long")} for s in known.values()]
            )
        else:
            rows = [(s.name, f"{s.title}. {s.paper}") for s in known.values()]
            output.table(("name", "what it shows"), rows, wrap=(1,))
        return
    if not names:
        raise GatelabError("no figure is named; give names from 'gatelab reproduce --list', or all")
    whole = "all" in names
    wanted = list(known) if whole else list(dict.fromkeys(one for name in names for one in _named(name, known)))
    check_folder(out)
    studies = [known[name] for name in wanted]
    with sweep.resumable():
        outcomes, failures = _run(studies, out, sweep, quick=quick, spare=whole and not full)
    if as_json:
        output.document(outcomes)
    elif whole:
        _print_overview(outcomes, out)
    else:
        for outcome in outcomes:
            _print(outcome)
    if failures:
        reasons = "; ".join(f"{name}: {error}" for name, error in failures.items())
        raise GatelabError(f"{len(failures)} of {len(wanted)} figures could not be made. {reasons}")


def _named(name: str, known: Iterable[str]) -> list[str]:
    """The studies of a name or of a pattern such as "scaling/*"."""
    found = [study for study in known if fnmatchcase(study, name)]
    if not found:
        raise unknown_name("study", name, (*known, "all"))
    return found


def _run(
    studies: list[Study], out: Path, sweep: SweepOptions, *, quick: bool, spare: bool
) -> tuple[list[dict[str, Any]], dict[str, GatelabError]]:
    """The outcome of each study as it was written; with `spare` not computed again where it is there.

    One that cannot be made, for want of data say, does not keep the others from being made.
    """
    from gatelab.studies import done_before, read_outcome, reproduce, take_record

    outcomes: list[dict[str, Any]] = []
    failures: dict[str, GatelabError] = {}

    def complete() -> str | None:
        files = [str(file) for outcome in outcomes for file in outcome["files"]]
        return f"complete: {', '.join(files)}" if files else None

    began, keywords = time.monotonic(), sweep.keywords()
    with interrupts.keeping(complete):
        for study in studies:
            if sweep.max_hours is not None:  # for all figures together
                keywords["max_hours"] = max(0.0, sweep.max_hours - (time.monotonic() - began) / 3600)
            outcome = None
            if spare:
                outcome = done_before(study.name, out, quick=quick)
                if outcome is None and study.long and not quick:
                    outcome = take_record(study.name, out)
            if outcome is None:
                try:
                    with output.progress(study.name) as report:
                        reproduce(study.name, out, progress=report, sweep=keywords, quick=quick, jobs=sweep.jobs)
                except GatelabError as error:
                    failures[study.name] = error
                    continue
                outcome = read_outcome(out / f"{study.name}.json")
            folder = (out / study.name).parent
            outcomes.append({**outcome, "files": [folder / file for file in outcome["files"]]})
    return outcomes, failures


def _print_overview(outcomes: list[dict[str, Any]], out: Path) -> None:
    """A line a study: what its claims came to, and where its numbers are from."""
    from gatelab.studies.claims import VERDICTS
    from gatelab.studies.records import read_claim

    rows = []
    for outcome in outcomes:
        date = outcome["date"][:10]
        origin = f"{outcome['seconds']:.1f} s, {date}"
        if outcome["recorded"]:
            origin = f"record of {date}, {outcome['device']}"
        counts = Counter(read_claim(claim).verdict for claim in outcome["claims"])
        results = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])
        rows.append((outcome["study"], results, origin))
    output.table(("study", "claims", "made"), rows, wrap=(1, 2))
    output.say("", "The page with every figure and every claim:", "")
    output.say(f"gatelab report --out {out}", wrap=False)


def _print(outcome: dict[str, Any]) -> None:
    from gatelab.studies.records import read_claim

    claims = [read_claim(claim) for claim in outcome["claims"]]
    output.say(f"{outcome['study']}: {outcome['title']}", outcome["paper"], "")
    if claims:
        rows = [(c.what, c.theirs, c.ours, c.verdict) for c in claims]
        output.table(("what", "paper", "ours", "verdict"), rows, wrap=(0, 1, 2))
        output.say("")
    # Claims of one curve share their reason, which is then said once.
    outside = [f"Outside the paper's conditions: {c.what}; {c.outside}." for c in claims if c.outside]
    output.points([*(c.because for c in claims), *outside, *outcome["notes"]])
    output.say_written(*outcome["files"])
    output.say(f"{outcome['seconds']:.1f} s", "")


def report_command(
    out: Annotated[Path, typer.Option(help="The folder that gatelab reproduce wrote to.")] = FOLDER,
    as_json: Json = False,
) -> None:
    """Make one page of everything that was reproduced."""
    check_folder(out)
    from gatelab.report import build

    page = build(out)
    if as_json:
        output.document({"page": page, "bytes": page.stat().st_size})
        return
    output.say(str(page), wrap=False)
