"""A study as data: a grid, a function from one cell of it to numbers, and a function from tables to claims.

    STUDY = Study("ntk/orders", "Condition number against the number of factors", grid={...}, over="seed")

    @STUDY.measure(together="q")
    def kernels(gate, rows, size, seed, q): ...      # yields dicts of numbers, one per q

    @STUDY.claims
    def claims(tables): ...                          # yields Claim objects

Cells are runs of a sweep. Numbers are averaged over the column `over`, with an interval as `name_low`, `name_high`. A
study whose tables are not those of a grid returns them itself (`tables`). Claims, figure and sentences depend on the
tables alone, so that a committed record consists of tables (`report`).

A Markdown template next to the module, with its name, holds the sentences of a study. Its paragraphs are notes. A
section with a heading is a finding: the heading is its topic, the first paragraph the result, the second the sizes and
data that it holds for; the figure of that topic is in `cards`.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from gatelab.discovery import specifications
from gatelab.display import Compact
from gatelab.errors import unknown_name
from gatelab.plotting.facets import Facets, Table, Tables, draw_figure
from gatelab.statistics import Interval, t_interval
from gatelab.studies.claims import Claim, number_text
from gatelab.studies.definition import Finding, Outcome, Request
from gatelab.sweep import Run, map_runs
from gatelab.sweep.backends import seconds_of, stopped

Mean = Literal["arithmetic", "geometric"]
Cell = dict[str, Any]
NO_NUMBER = Interval(math.nan, math.nan, math.nan)
NO_FIGURE = Facets("", "")
Function = TypeVar("Function", bound=Callable[..., Any])


def grid_cells(grid: Mapping[str, Sequence[Any]], together: str = "") -> list[Cell]:
    """One dict of arguments per cell; all values of `together` are one argument, as a tuple.

    A key "n, d" stands for two arguments, whose values are pairs.

    >>> grid_cells({"gate": ["relu"], "n, d": [(60, 30), (80, 20)], "q": [0, 1]}, together="q")
    [{'gate': 'relu', 'n': 60, 'd': 30, 'q': (0, 1)}, {'gate': 'relu', 'n': 80, 'd': 20, 'q': (0, 1)}]
    """
    values = dict(grid)
    if together in grid:
        values[together] = (tuple(grid[together]),)
    cells = []
    for combination in itertools.product(*values.values()):
        cell: Cell = {}
        for key, value in zip(values, combination, strict=True):
            if ", " in key:
                cell |= dict(zip(key.split(", "), value, strict=True))
            else:
                cell[key] = value
        cells.append(cell)
    return cells


def measured_rows(task: str, cells: Sequence[Cell], together: str, request: Request) -> Table:
    """The numbers of all cells, in the order of the cells."""
    runs = [Run("gatelab.studies.engine:compute_cell", {"task": task, "together": together, "cell": c}) for c in cells]
    options = request.sweep_now()
    options["max_seconds"] = seconds_of(options.pop("max_hours", None))
    few = request.quick or request.jobs == 1 or len(runs) < 2  # starting processes takes seconds
    options.setdefault("backend", ("processes", "serial")[few])
    if listener := request.progress:
        options["progress"] = lambda state: listener(state.finished, state.total)
    rows = {}
    for record in map_runs(runs, jobs=request.jobs, **options):
        if not record.ok:
            raise RuntimeError(f"{task} failed at {record.arguments['cell']}:\n{record.error}")
        rows[record.key] = record.metrics["rows"]
    if len(rows) < len({run.key for run in runs}):
        raise stopped(request.sweep["max_hours"], f"{len(rows)} of {len(runs)} cells", options.get("store"))
    return pd.DataFrame([row for run in runs for row in rows[run.key]])


def compute_cell(task: str, together: str, cell: Cell) -> dict[str, Any]:
    """One cell as a run of the sweep: the numbers of the study's function, with the arguments of each."""
    from gatelab.sweep.worker import resolve

    numbers = resolve(task)(**cell)
    if isinstance(numbers, Mapping):
        numbers = [numbers]
    arguments = [{name: value for name, value in cell.items() if name != together}]
    if together:
        arguments = [{**arguments[0], together: value} for value in cell[together]]
    rows = [{**own, **part} for own, part in zip(arguments, numbers, strict=True)]
    return {"rows": [row | {k: v.item() for k, v in row.items() if hasattr(v, "item")} for row in rows]}


def averaged(rows: Table, over: str, by: Sequence[str], mean: Mean) -> Table:
    """Means of all numbers over one column, with t-intervals; of geometric means, the intervals are of logarithms.

    >>> rows = pd.DataFrame({"unit": ["glu"] * 3, "seed": [0, 1, 2], "error": [1.0, 2.0, 4.0]})
    >>> averaged(rows, "seed", ["unit"], "geometric").round(3).to_dict("records")
    [{'unit': 'glu', 'error': 2.0, 'error_low': 0.357, 'error_high': 11.19, 'seeds': 3}]
    """
    table, average = [], {"arithmetic": t_interval, "geometric": geometric_mean}[mean]
    for key, group in rows.groupby(list(by), sort=False):
        row = dict(zip(by, key, strict=True))
        for name in rows.columns.difference([*by, over], sort=False):
            values = group[name].dropna().to_numpy(float)
            row |= interval_columns(name, average(values) if len(values) else NO_NUMBER)
        table.append(row | {f"{over}s": len(group)})
    return pd.DataFrame(table)


def geometric_mean(values: Any) -> Interval:
    """The geometric mean with the t-interval of the logarithms."""
    mean = t_interval(np.log(np.asarray(values, float)))
    return Interval(*(float(np.exp(end)) for end in (mean.value, mean.low, mean.high)))


def interval_at(row: Table, name: str) -> Interval:
    """A number of a row with its interval, in the columns of `interval_columns` or in `low` and `high`."""
    low, high = (f"{name}_low", f"{name}_high") if f"{name}_low" in row else ("low", "high")
    return Interval(float(row[name]), float(row[low]), float(row[high]))


def interval_columns(name: str, value: Interval) -> dict[str, float]:
    """A number and its interval as columns of a table, which `interval_at` reads."""
    return {name: value.value, f"{name}_low": value.low, f"{name}_high": value.high}


@dataclass(frozen=True, eq=False)
class Study(Compact):
    """A table or figure of a paper, or a question beyond the papers, as tables, claims, figure and sentences.

    Attributes:
        name: The paper and the figure, such as "scaling/fig2".
        title: The title, in a few words.
        paper: The result of the paper there, in one sentence.
        grid: The values of each argument of the measures.
        quick: The values that a quick run takes instead of some of them.
        over: The argument that numbers are averaged over; empty for none.
        mean: The kind of average.
        figure: The facets of the figure, several side by side, or a function from the tables to a figure.
        cards: The small figure of each finding, by its topic.
        long: Whether it takes minutes on two cores, or data that are not public: `reproduce all` then takes the
            committed record.
        position: Its place among the studies of its paper; studies without one come last, by name.
        beyond: Whether it goes beyond the papers and answers none of their places.
    """

    name: str
    title: str
    paper: str = ""
    grid: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    quick: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    over: str = ""
    mean: Mean = "arithmetic"
    figure: Facets | Sequence[Facets] | Callable[[Tables], Figure] = NO_FIGURE
    cards: Mapping[str, Facets] = field(default_factory=dict)
    long: bool = False
    position: float = math.inf
    beyond: bool = False
    measures: dict[str, dict[str, Any]] = field(default_factory=dict, repr=False)
    _functions: dict[str, Any] = field(default_factory=dict, repr=False)

    def measure(self, name: str = "", together: str = "", **own: Any) -> Callable[[Function], Function]:
        """Declare the function from one cell to the numbers of a table.

        It returns a dict, or one dict per value of the argument `together`, which it receives as a tuple. `own` are
        the grid, quick, over and mean of this table, if they differ from the study's.
        """

        def register(function: Function) -> Function:
            settings = {key: own.get(key, getattr(self, key)) for key in ("grid", "quick", "over", "mean")}
            settings |= {"task": f"{function.__module__}:{function.__name__}", "together": together}
            self.measures[name or self.name.rpartition("/")[2]] = settings
            return function

        return register

    def tables(self, function: Function) -> Function:
        """Declare a function from the request to tables that are not measured on a grid."""
        self._functions["tables"] = function
        return function

    def columns(self, function: Function) -> Function:
        """Declare a function from the averaged tables and their single rows to the tables of the outcome."""
        self._functions["columns"] = function
        return function

    def claims(self, function: Function) -> Function:
        """Declare the function from the tables to the claims."""
        self._functions["claims"] = function
        return function

    def run(self, request: Request) -> Outcome:
        """Measure, and report."""
        return self.report(self.measured(request))

    def measured(self, request: Request) -> Tables:
        """The tables of the outcome."""
        rows, tables = {}, {}
        for name, own in self.measures.items():
            quick = {key: values for key, values in own["quick"].items() if request.quick and key in own["grid"]}
            cells, over = grid_cells({**own["grid"], **quick}, own["together"]), own["over"]
            rows[name] = tables[name] = measured_rows(own["task"], cells, own["together"], request)
            if over:
                tables[name] = averaged(rows[name], over, [key for key in cells[0] if key != over], own["mean"])
        if "tables" in self._functions:
            tables |= self._functions["tables"](request)
        if "columns" in self._functions:
            tables = self._functions["columns"](tables, rows)
        return tables

    def report(self, tables: Tables) -> Outcome:
        """Claims, figure and sentences from tables, measured now or read from a record."""
        claims = tuple(self._functions["claims"](tables))
        figure = self.figure(tables) if callable(self.figure) else draw_figure(self.figure, tables)
        return Outcome(figure, dict(tables), claims, self._sections(tables, claims)[""])

    def findings(self, tables: Tables) -> tuple[Finding, ...]:
        """The findings: the sections of the template, each with its small figure."""
        if not self.cards:
            return ()
        paragraphs = self._sections(tables, tuple(self._functions["claims"](tables)))
        sentences, sizes = ({topic: paragraphs[topic][i] for topic in self.cards} for i in range(2))
        return tuple(Finding(t, sentences[t], sizes[t], facets, tables) for t, facets in self.cards.items())

    def _sections(self, tables: Tables, claims: tuple[Claim, ...]) -> dict[str, tuple[str, ...]]:
        module = sys.modules[self._functions["claims"].__module__]
        return sections(Path(str(module.__file__)).with_suffix(".md"), **tables, study=self.name, claims=claims)


def sections(template: Path, claims: Sequence[Claim] = (), **values: Any) -> dict[str, tuple[str, ...]]:
    """The paragraphs of a template by the heading above them; those before the first heading have "".

    A template can use the tables by their names, `claim["what"]` for the claims, and `study`, the name of the study.
    """
    if not template.is_file():
        return {"": ()}
    from jinja2 import Environment, StrictUndefined

    environment = Environment(undefined=StrictUndefined, autoescape=False, keep_trailing_newline=True)
    environment.filters["number"] = number_text
    by_title = {claim.what: claim for claim in claims}
    text = environment.from_string(template.read_text(encoding="utf-8")).render(claim=by_title, **values)
    paragraphs: dict[str, tuple[str, ...]] = {}
    for part in f"\n{text}".split("\n## "):
        heading, _, body = part.partition("\n")
        paragraphs[heading.strip()] = tuple(" ".join(p.split()) for p in body.split("\n\n") if p.strip())
    return paragraphs


# ---- the studies by name: a study is any `Study` at the top of a module of a paper's folder

PAPERS = ("scaling", "ntk", "linearize")  # in the order of the report
FOLDERS = (*PAPERS, "ladder", "models")  # the last two go beyond the papers


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
        name: The paper and the study, such as "scaling/fig2"; an unknown name raises an error with similar names.

    Returns:
        The study, which can be run.

    >>> study("scaling/fig3").title
    'ReLUs of the spline initializations'
    """
    if name not in studies_by_name():
        raise unknown_name("study", name, studies_by_name())
    return studies_by_name()[name]


@cache
def studies_by_name() -> dict[str, Study]:
    """All studies in the folders, in the order of `all_studies`, by name."""
    by_name: dict[str, Study] = {}
    for paper in FOLDERS:
        studies = specifications(f"gatelab.studies.{paper}", Study)
        by_name |= {s.name: s for s in sorted(studies.values(), key=lambda s: (s.position, s.name))}
    return by_name
