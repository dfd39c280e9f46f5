"""What a study is and what it gives: a figure of a paper measured again, its claims, and its findings.

A `Claim` puts one statement of the paper beside ours, and says at which place of the paper it stands; an `Item` is such
a place. A `Finding` is for a reader in a hurry: one sentence with measured numbers, and one small figure. A study makes
its findings out of its own tables, so that they can be made from a record as well as from a run, and no number is
copied by hand.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from gatelab.display import Compact, Listener
from gatelab.errors import unknown_name
from gatelab.plotting.facets import Facets

Tables = Mapping[str, pd.DataFrame]


@dataclass(frozen=True)
class Stroke(Compact):
    """One series of a sketch.

    Attributes:
        label: Its name in the legend.
        x: Where its points lie.
        y: Their values.
        colour: Its colour.
        dashed: Whether its line is dashed.
        marks: Whether it is points and not a line.
        low: The lower ends of intervals, where there are any.
        high: The upper ends of intervals, where there are any.
    """

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    colour: str
    dashed: bool = False
    marks: bool = False
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


@dataclass(frozen=True)
class Sketch(Compact):
    """A figure with one message.

    Attributes:
        x: What its x axis has.
        y: What its y axis has.
        strokes: Its series.
        log_x: Whether its x axis is logarithmic.
        log_y: Whether its y axis is logarithmic.
        places: Names of the positions 0, 1, 2, ... on the x axis.
        level: A value at which a line is drawn across.
    """

    x: str
    y: str
    strokes: tuple[Stroke, ...]
    log_x: bool = True
    log_y: bool = True
    places: tuple[str, ...] = ()
    level: float | None = None


@dataclass(frozen=True)
class Finding(Compact):
    """What a study says to a reader in a hurry.

    Attributes:
        topic: What it is about, in a few words.
        sentence: What was measured; what the numbers do not decide is called undecided.
        sizes: The sizes and the data that it is true of.
        sketch: Its figure.
        tables: The tables that the figure is drawn from, where it is facets.
    """

    topic: str
    sentence: str
    sizes: str
    sketch: Sketch | Facets
    tables: Tables = field(default_factory=dict)


Findings = Callable[[Tables], tuple[Finding, ...]]


def no_findings(tables: Tables) -> tuple[Finding, ...]:
    """The findings of a study that the reader in a hurry is not shown: there are none."""
    return ()


def stroke(
    label: str, table: pd.DataFrame, x: str, y: str, colour: str, *, dashed: bool = False, marks: bool = False
) -> Stroke:
    """Two columns of a table as a series, in ascending x.

    >>> stroke("a", pd.DataFrame({"n": [2, 1], "e": [0.1, 0.2]}), "n", "e", "#000000").y
    (0.2, 0.1)
    """
    columns = table[[x, y]].dropna().to_numpy(dtype=float)
    ordered = columns[np.argsort(columns[:, 0], kind="stable")]
    return Stroke(label, numbers(ordered[:, 0]), numbers(ordered[:, 1]), colour, dashed, marks)


def numbers(values: Iterable[Any]) -> tuple[float, ...]:
    """Values of whatever kind of number as plain ones.

    >>> numbers(np.array([1, 2]))
    (1.0, 2.0)
    """
    return tuple(float(value) for value in values)


def only(table: pd.DataFrame, **wanted: object) -> pd.DataFrame:
    """The rows in which every column has the wanted value; that there are none is an error.

    >>> only(pd.DataFrame({"unit": ["mlp", "glu"], "slope": [-2.0, -3.0]}), unit="glu")["slope"].item()
    -3.0
    """
    rows = table
    for column, value in wanted.items():
        rows = rows.loc[rows[column] == value]
    if rows.empty:
        raise KeyError(", ".join(f"{column} {value}" for column, value in wanted.items()))
    return rows


def last(table: pd.DataFrame, **wanted: object) -> dict[str, Any]:
    """The last of the rows that `only` gives, by column.

    >>> last(pd.DataFrame({"unit": ["mlp", "glu"], "slope": [-2.0, -3.0]}), unit="mlp")["slope"]
    -2.0
    """
    return {str(name): value for name, value in only(table, **wanted).to_dict("records")[-1].items()}


def span(values: Any, form: str = ".2f") -> str:
    """From the least to the greatest in words, once where they read the same.

    >>> span(pd.Series([1.25, 0.5])), span(pd.Series([1.0, 1.001]))
    ('0.50 to 1.25', '1.00')
    """
    return " to ".join(dict.fromkeys(f"{value:{form}}" for value in (values.min(), values.max())))


def bracket(low: float, high: float, form: str = ".2f") -> str:
    """An interval in a sentence, with the space before it; nothing where there is none.

    >>> bracket(-1.8, -1.64), bracket(float("nan"), 1.0)
    (' [-1.80, -1.64]', '')
    """
    if np.isnan(low) or np.isnan(high):
        return ""
    return f" [{low:{form}}, {high:{form}}]"


def beside(low: float, high: float, other: float, below: str, above: str) -> str:
    """How an interval lies beside a number: wholly below it, wholly above it, or undecided.

    >>> beside(-1.8, -1.6, -2.1, "steeper than", "flatter than"), beside(1.0, 3.0, 2.0, "less than", "more than")
    ('flatter than', 'not told apart from')
    """
    if high < other:
        return below
    if low > other:
        return above
    return "not told apart from"


Verdict = Literal["reproduced", "exceeded", "differs", "undecided", "new"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)


@dataclass(frozen=True)
class Claim(Compact):
    """One statement of the paper beside ours.

    Attributes:
        what: What is measured, in a few words: the title of the claim.
        paper: What the paper says of it.
        ours: What we measure.
        verdict: How the two agree, by the rules of `verdicts`; "undecided" where our interval allows both what the
            paper says and its opposite, or its formula is lost; "new" where the paper has nothing to compare with.
        because: The reason in measured numbers.
        interval: How far ours may be off, where that is measured.
        place: Where the paper says it, as its inventory has it, such as "figure 2, MLP against n"; several places are
            separated by "; ". Empty where no place of the paper is answered.
        outside: Which of the paper's conditions does not hold where this was measured; empty where all hold.
    """

    what: str
    paper: str
    ours: str
    verdict: Verdict
    because: str
    interval: str = ""
    place: str = ""
    outside: str = ""

    @property
    def places(self) -> tuple[str, ...]:
        """The places that the claim answers.

        >>> Claim("a slope", "-3", "-3", "reproduced", "", place="eq. 6, order; figure 2, GLU").places
        ('eq. 6, order', 'figure 2, GLU')
        """
        return tuple(place for place in self.place.split("; ") if place)


@dataclass(frozen=True)
class Request(Compact):
    """How to run a study.

    Attributes:
        quick: Whether to take few widths and points.
        jobs: How many processes fit at once; by default as many as there are cores.
        progress: Called after each fit with how many are finished and how many there are.
        sweep: What `gatelab.scaling` takes beside the study's own arguments: store, backend, address, retry_failed,
            max_hours. The hours are for the whole study, from when it was asked for.
        began: When it was asked for, by a clock that only goes forward.
    """

    quick: bool = False
    jobs: int | None = None
    progress: Listener | None = None
    sweep: Mapping[str, Any] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)

    def sweep_now(self) -> dict[str, Any]:
        """`sweep` with the hours that are left: a study may have several sweeps, its user has one patience."""
        hours = self.sweep.get("max_hours")
        if hours is None:
            return dict(self.sweep)
        return {**self.sweep, "max_hours": max(0.0, hours - (time.monotonic() - self.began) / 3600)}


@dataclass(frozen=True, eq=False)
class Outcome(Compact):
    """What a study gives.

    Attributes:
        figure: The paper's figure, drawn from what we measured.
        tables: The numbers behind it, by name.
        comparison: The claims, in the order in which they are shown.
        notes: Sentences on what was measured and how.
    """

    figure: Figure
    tables: dict[str, pd.DataFrame]
    comparison: tuple[Claim, ...]
    notes: tuple[str, ...]


def no_outcome(request: Request) -> Outcome:
    """What a study without a function does."""
    raise NotImplementedError


@dataclass(frozen=True)
class Study(Compact):
    """A figure of the paper that can be run.

    Attributes:
        name: The paper and the figure, such as "scaling/fig2".
        title: What it is about, in a few words.
        paper: One sentence: what the paper shows there.
        run: Makes the outcome.
        long: It takes minutes on two cores, or data that not everybody has: with all the others it comes from the
            committed records.
        findings: Makes sentences for the top of the report out of the study's own tables.
        position: Its place among the studies of its paper; those without one come last, by name.
        beyond: It is of something that no paper has, and answers for no place.
    """

    name: str
    title: str
    paper: str = ""
    run: Callable[[Request], Outcome] = no_outcome
    long: bool = False
    findings: Findings = no_findings
    position: float = math.inf
    beyond: bool = False


@dataclass(frozen=True)
class Item:
    """What a paper shows at a place: a row of a table, a panel of a figure, a number or a statement of the text.

    Attributes:
        paper: The folder of the paper's studies, such as "scaling".
        heading: The table, figure, equation or section.
        row: The row or panel of it, or what is said there.
        printed: The number as the paper prints it; empty where there is a statement or a picture without one.
        why: What is lost in our copy of the paper or stands elsewhere, or why there is nothing to measure.
        measurable: Whether a claim can answer for it; definitions and listings have no result of their own.
        missing: Why it could be measured and was not; empty where it was.
    """

    paper: str
    heading: str
    row: str
    printed: str = ""
    why: str = ""
    measurable: bool = True
    missing: str = ""

    @property
    def place(self) -> str:
        """The place as claims name it.

        >>> Item("scaling", "figure 2", "MLP against n", "-2.13").place
        'figure 2, MLP against n'
        """
        return f"{self.heading}, {self.row}"


def ticker(request: Request, total: int) -> Callable[..., None]:
    """Count what is finished and report it to whoever asked for the study.

    >>> tick = ticker(Request(progress=lambda done, total: print(f"{done} of {total}")), 2)
    >>> tick()
    1 of 2
    """
    count = 0

    def tick(*_: object) -> None:
        nonlocal count
        count += 1
        if request.progress:
            request.progress(count, total)

    return tick


# ---- the studies by name: a study is any `Study` at the top of a module of a paper's folder

# The papers, in the order of the report.
PAPERS = ("scaling", "ntk", "linearize")
# The folders of studies: those of the papers, and of what no paper has.
FOLDERS = (*PAPERS, "ladder", "models")


def all_studies() -> tuple[Study, ...]:
    """Every study, in the order of the papers and of their figures.

    Returns:
        The studies; those of a paper are ordered by their position, and by name where they have none.

    >>> [study.name for study in all_studies()][:3]
    ['scaling/fig1', 'scaling/fig2', 'scaling/fig3']
    """
    return tuple(studies_by_name().values())


def study(name: str) -> Study:
    """The study of a name.

    Args:
        name: The paper and the study, such as "scaling/fig2"; what is not there is an error that names the nearest.

    Returns:
        The study, which can be run.

    >>> study("scaling/fig3").title
    'ReLUs of the spline initialisations'
    """
    if name not in studies_by_name():
        raise unknown_name("study", name, studies_by_name())
    return studies_by_name()[name]


@cache
def studies_by_name() -> dict[str, Study]:
    """All studies that the folders of the papers hold, in the order of `all_studies`, by name."""
    by_name: dict[str, Study] = {}
    for paper in FOLDERS:
        package = import_module(f"gatelab.studies.{paper}")
        modules = [import_module(f"{package.__name__}.{info.name}") for info in iter_modules(package.__path__)]
        studies = {s.name: s for module in modules for s in vars(module).values() if isinstance(s, Study)}
        by_name |= {s.name: s for s in sorted(studies.values(), key=lambda s: (s.position, s.name))}
    return by_name
