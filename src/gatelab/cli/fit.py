"""`gatelab fit`: one network, and its error compared with the limit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gatelab.cli import output, reading
from gatelab.cli.options import OneUnit, Plot, ProblemOptions, Seeds, SolverOptions, Words, as_list, out_option
from gatelab.cli.output import check_file
from gatelab.errors import GatelabError
from gatelab.files import PICTURES

if TYPE_CHECKING:
    from gatelab.data import Problem
    from gatelab.solve import Fit

FIT = """Examples: gatelab fit glu --width 50

gatelab fit glu "exp(sin(3*x))" --width 25 --interval 0,3 --plot fit.png

gatelab fit mlp --data points.csv --target price --out mlp.safetensors"""


@dataclass(frozen=True)
class LimitOfFit:
    """The limit of a fit and the ratio of its error to it; the note gives the reason if one of them is missing."""

    limit: float | None
    ratio: float | None
    note: str

    def __str__(self) -> str:
        if self.limit is None:
            return f"none: {self.note}"
        return f"{self.limit:.3e}, {self.note or f'test RMSE is {self.ratio:.2f} times that'}"


def fit_command(
    *,
    words: Words = None,
    unit: OneUnit = None,
    width: Annotated[int, typer.Option(help="Neurons.")] = 50,
    seed: Annotated[int, typer.Option(min=0, help="The first seed.")] = 0,
    seeds: Seeds = 1,
    solver: SolverOptions,
    source: ProblemOptions,
    plot: Plot = None,
    out: Annotated[Path | None, out_option("Write the model, .safetensors, for gatelab predict.")] = None,
) -> None:
    """Train one network and compare its error with the limit."""
    check_file(out, (".safetensors",))
    check_file(plot, PICTURES)
    names, word = reading.units(words, as_list(unit))
    name = reading.one_unit(names, "fit", word)
    settings = solver.settings()
    problem = source.problem(word)
    from gatelab.solve import fit

    best = fit(name, problem, width, seed=seed, seeds=seeds, progress=output.shown(), **settings)
    limit = limit_of_fit(best, problem)
    if out:
        best.save(out)
    if plot:
        best.plot(plot)
    raw, many = "", ""
    if best.scales is not None:
        raw = f", {best.test_rmse_raw:.3e} in the units of the target"
    if seeds > 1:
        many = f" for {seeds} seeds"
    output.emit(
        {**best.as_row(), "limit": limit.limit, "ratio": limit.ratio, "limit_note": limit.note},
        f"{best.unit} of width {best.width}, {best.parameters} parameters, fitted to {best.problem}",
        output.pairs(
            [
                ("train RMSE", f"{best.train_rmse:.3e}"),
                ("test RMSE", f"{best.test_rmse:.3e}{raw}"),
                ("limit", str(limit)),
                ("status", f"{best.status} ({best.advice})"),
                ("solver", f"{best.solver}, {best.steps} steps, seed {best.seed}"),
                ("time", f"{best.seconds:.2f} s{many}"),
            ]
        ),
        files=(out, plot),
    )


def limit_of_fit(fit: Fit, problem: Problem) -> LimitOfFit:
    """The theoretical limit of the unit at this width, compared with the fit."""
    from gatelab.scaling_laws import limit
    from gatelab.scaling_laws.slopes import noise_of, noise_rmse, set_by_noise

    try:
        bound = limit(fit.unit, problem, fit.width)
    except GatelabError as error:
        return LimitOfFit(None, None, str(error))
    if not bound:
        return LimitOfFit(bound, None, "the unit can be exact here")
    noise = noise_of(problem) or 0.0
    if set_by_noise(fit.test_rmse, noise_rmse(problem, noise, fit.parameters)):
        return LimitOfFit(bound, None, f"but noise (sigma about {noise:.2g}) sets the test RMSE")
    return LimitOfFit(bound, fit.test_rmse / bound, "")
