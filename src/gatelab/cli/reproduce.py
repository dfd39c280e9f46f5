"""`gatelab demo`, `gatelab reproduce` and `gatelab report`: the results of the papers, measured again."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from gatelab.cli import interrupts, output
from gatelab.cli.options import DryRun, MaybeWords, SweepOptions, argument, option, out_option, resuming
from gatelab.display import duration
from gatelab.errors import GatelabError, unknown_name
from gatelab.files import write_whole

if TYPE_CHECKING:
    from gatelab.studies import Study

Out = Annotated[Path, out_option("The folder for all files.")]
FOLDER = Path("gatelab-out")
DEMO = "Example: gatelab demo --max-width 20 --store runs.db"
REPRODUCE = """Examples: gatelab reproduce --list
gatelab reproduce scaling/fig2 --store runs.db
gatelab reproduce 'scaling/*' --quick --dry-run
gatelab reproduce all --quick --out quick"""
REPORT = """Examples: gatelab report
gatelab report --out gatelab-out --json"""


def demo_command(
    *,
    out: Out = FOLDER,
    max_width: Annotated[int, option("Networks of 1 to this many neurons; with smooth gates at most 12.", min=2)] = 50,
    sweep: SweepOptions,
) -> None:
    """Show how the errors of seven units fall, and why."""
    output.check_folder(out)
    keywords = sweep.keywords()
    from gatelab.report.builders import SMOOTH, demo_page, demo_tables
    from gatelab.studies import demo

    with resuming(sweep.store), output.progress("fits") as report:
        study = demo(out, widths=range(1, max_width + 1), jobs=sweep.jobs, progress=report, sweep=keywords)
    page = write_whole(out / "demo.html", demo_page(study, f"gatelab demo --max-width {max_width}"))
    slopes, rates = demo_tables(study)
    facts = {name: getattr(study, name).to_dict("records") for name in ("slopes", "rates")}
    output.emit(
        {**facts, "reason": study.reason, "seconds": study.seconds, "points": study.scaling.points},
        output.table(slopes),
        f"\nslopes with 95 % intervals; ratio to the limit and RMSE on test data at width {max_width}\n",
        output.table(rates),
        f"\nsmooth gates: {SMOOTH}",
        f"\n{study.reason}",
        f"\n{study.seconds:.1f} s of computing",
        files=(*study.files, page),
    )


def reproduce_command(
    *,
    names: Annotated[MaybeWords, argument("[NAME...|all]", "Names from --list, or patterns such as 'ntk/*'.")] = None,
    every: Annotated[bool, option("List the figures.", "--list")] = False,
    out: Out = FOLDER,
    quick: Annotated[bool, option("Few widths and points, as a check.", "--quick")] = False,
    full: Annotated[bool, option("With all: compute long and finished ones as well.", "--full")] = False,
    sweep: SweepOptions,
    dry_run: DryRun = False,
) -> None:
    """Measure the figures of the papers again and compare with the published numbers.

    `all` skips studies that this code has written to the folder before, and takes long ones from committed records.
    """
    from gatelab.studies import all_studies

    known = {s.name: s for s in all_studies()}
    if every:
        facts = [{name: getattr(s, name) for name in ("name", "title", "paper", "long")} for s in known.values()]
        described = [{"name": s.name, "description": f"{s.title}. {s.paper}"} for s in known.values()]
        output.emit(facts, output.table(described))
        return
    if not names:
        raise GatelabError("no figure is named; give names from 'gatelab reproduce --list', or all")
    wanted: dict[str, Study] = {}
    for name in names:
        if not (found := {one: known[one] for one in known if name == "all" or fnmatchcase(one, name)}):
            raise unknown_name("study", name, (*known, "all"))
        wanted |= found
    output.check_folder(out)
    studies, spare = list(wanted.values()), "all" in names and not full
    if dry_run:
        emit_plan(studies, out, quick=quick, spare=spare)
        return
    with resuming(sweep.store):
        outcomes, failures = _run(studies, out, sweep, quick=quick, spare=spare)
    parts = [part for outcome in outcomes for part in outcome_parts(outcome)]
    if "all" in names:
        parts = overview_parts(outcomes, out)
    output.emit(outcomes, *parts)
    if failures:
        reasons = "; ".join(f"{name}: {error}" for name, error in failures.items())
        raise GatelabError(f"{len(failures)} of {len(wanted)} figures could not be made. {reasons}")


def emit_plan(studies: list[Study], out: Path, *, quick: bool, spare: bool) -> None:
    """The work for each study, with --dry-run; times are those of the committed records."""
    from gatelab.studies import done_before, read_outcome
    from gatelab.studies.records import record_folders

    rows = []
    for study in studies:
        records = [path for folder in record_folders() if (path := folder / f"{study.name}.json").is_file()]
        seconds, work = None, "compute"
        with suppress(GatelabError, IndexError):  # some records hold data instead of an outcome
            seconds = read_outcome(records[0])["seconds"]
        if spare and done_before(study.name, out, quick=quick) is not None:
            work = "done"
        elif spare and study.long and not quick and records:
            work = "take the record"
        rows.append({"study": study.name, "work": work, "recorded_seconds": seconds})
    left = sum(row["recorded_seconds"] or 0 for row in rows if row["work"] == "compute")
    output.emit(
        {"studies": rows, "recorded_seconds": left, "quick": quick},
        output.table(rows, {"recorded_seconds": ".1f"}),
        "",
        f"{duration(left)} in the records for the studies to compute; --quick takes less",
    )


def _run(
    studies: list[Study], out: Path, sweep: SweepOptions, *, quick: bool, spare: bool
) -> tuple[list[dict[str, Any]], dict[str, GatelabError]]:
    """The outcomes, and the studies that failed; with `spare` finished and long ones are not computed again."""
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


def overview_parts(outcomes: list[dict[str, Any]], out: Path) -> list[output.Part]:
    """One line per study: the verdicts of its claims and the origin of its numbers."""
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
        rows.append({"study": outcome["study"], "claims": results, "made": origin})
    command = output.Line(f"gatelab report --out {out}")
    return [output.table(rows), "", "The page with every figure and every claim:", "", command]


def outcome_parts(outcome: dict[str, Any]) -> Iterator[output.Part]:
    """The claims of one study with verdicts, notes and files."""
    from gatelab.studies.records import read_claim

    claims = [read_claim(claim) for claim in outcome["claims"]]
    yield from (f"{outcome['study']}: {outcome['title']}", outcome["paper"], "")
    if claims:
        rows = [{"claim": c.what, "paper": c.theirs, "ours": c.ours, "verdict": c.verdict} for c in claims]
        yield from (output.table(rows), "")
    # Claims of one curve share their reason, which `points` prints once.
    outside = [f"Outside the conditions of the paper: {c.what}; {c.outside}." for c in claims if c.outside]
    yield output.points([*(c.because for c in claims), *outside, *outcome["notes"]])
    yield from (output.Line(f"wrote {file}") for file in outcome["files"])
    yield from (f"{outcome['seconds']:.1f} s", "")


def report_command(
    out: Annotated[Path, out_option("The folder that gatelab reproduce wrote to.")] = FOLDER,
) -> None:
    """Make one page of all reproduced results."""
    output.check_folder(out)
    from gatelab.report import build

    page = build(out)
    output.emit({"bytes": page.stat().st_size}, files=(page,))
