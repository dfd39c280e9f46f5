"""`gatelab fit`: one network, and how near it is to the limit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gatelab.cli import output, reading
from gatelab.cli.options import Json, ProblemOptions, Seeds, SolverOptions, Words, grouped, unit_option
from gatelab.cli.output import check_file
from gatelab.errors import GatelabError

if TYPE_CHECKING:
    from gatelab.data import Problem
    from gatelab.solve import Fit

FIT = """Examples: gatelab fit glu --width 50

gatelab fit glu "exp(sin(3*x))" --width 25 --interval 0,3

gatelab fit mlp --data points.csv --target price --save mlp.safetensors"""


@dataclass(frozen=True)
class LimitOfFit:
    """The limit of a fit and how many times that its error is; the note says why one of them is missing."""

    limit: float | None
    ratio: float | None
    note: str

    def __str__(self) -> str:
        if self.limit is None:
            return f"none: {self.note}"
        return f"{self.limit:.3e}, {self.note or f'test RMSE is {self.ratio:.2f} times that'}"


@grouped
def fit_command(
    *,
    words: Words = None,
    units: Annotated[list[str] | None, unit_option()] = None,
    width: Annotated[int, typer.Option(help="Neurons.")] = 50,
    seed: Annotated[int, typer.Option(min=0, help="The first seed.")] = 0,
    seeds: Seeds = 1,
    solver: SolverOptions,
    source: ProblemOptions,
    save: Annotated[Path | None, typer.Option(help="Write the model, .safetensors, for gatelab predict.")] = None,
    as_json: Json = False,
) -> None:
    """Train one network and say how near it is to the limit."""
    check_file(save, (".safetensors",))
    names, word = reading.units(words, units)
    unit = reading.one_unit(names, "fit", word)
    solver.check()
    problem = source.problem(word)
    from gatelab.solve import fit

    best = fit(unit, problem, width, seed=seed, seeds=seeds, progress=True, **solver.settings())
    limit = limit_of_fit(best, problem)
    if save:
        best.save(save)
    if as_json:
        row = {"limit": limit.limit, "ratio": limit.ratio, "limit_note": limit.note, "saved": save}
        output.document(best.as_row() | row)
        return
    output.say(f"{best.unit} of width {best.width}, {best.parameters} parameters, fitted to {best.problem}")
    raw, many = "", ""
    if best.scales is not None:
        raw = f", {best.test_rmse_raw:.3e} in the target's own units"
    if seeds > 1:
        many = f" for {seeds} seeds"
    output.pairs(
        [
            ("train RMSE", f"{best.train_rmse:.3e}"),
            ("test RMSE", f"{best.test_rmse:.3e}{raw}"),
            ("limit", str(limit)),
            ("status", f"{best.status} ({best.advice})"),
            ("solver", f"{best.solver}, {best.steps} steps, seed {best.seed}"),
            ("time", f"{best.seconds:.2f} s{many}"),
        ]
    )
    if save:
        output.say(f"saved {save}", wrap=False)


def limit_of_fit(fit: Fit, problem: Problem) -> LimitOfFit:
    """What theory says of the unit at that width, beside what the fit came to."""
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
