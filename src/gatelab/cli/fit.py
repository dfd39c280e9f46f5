"""`gatelab fit`: one network, and its error compared with the limit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from gatelab.cli import output, reading
from gatelab.cli.options import OneUnit, Plot, ProblemOptions, Seeds, SolverOptions, Words, as_list, option, out_option
from gatelab.errors import GatelabError

if TYPE_CHECKING:
    from gatelab.data import Problem
    from gatelab.solve import Fit

FIT = """Examples: gatelab fit glu --width 50
gatelab fit glu "exp(sin(3*x))" --width 25 --interval 0,3 --plot fit.png
gatelab fit mlp --data points.csv --target price --out mlp.safetensors"""


def fit_command(
    *,
    words: Words = None,
    unit: OneUnit = None,
    width: Annotated[int, option("Neurons.")] = 50,
    seed: Annotated[int, option("The first seed.", min=0)] = 0,
    seeds: Seeds = 1,
    solver: SolverOptions,
    source: ProblemOptions,
    plot: Plot = None,
    out: Annotated[Path | None, out_option("Write the model, .safetensors.", ".safetensors")] = None,
) -> None:
    """Train one network and compare its error with the limit."""
    names, word = reading.units(words, as_list(unit))
    name = reading.one_unit(names, "fit", word)
    settings = solver.settings()
    problem = source.problem(word)
    from gatelab.solve import fit

    best = fit(name, problem, width, seed=seed, seeds=seeds, progress=output.shown(), **settings)
    facts = limit_of_fit(best, problem)
    output.write(best, out, plot)
    raw, limit = "", f"none: {facts['limit_note']}"
    if best.scales is not None:
        raw = f", {best.test_rmse_raw:.3e} in the units of the target"
    if facts["limit"] is not None:
        note = facts["limit_note"] or f"test RMSE is {facts['ratio']:.2f} times that"
        limit = f"{facts['limit']:.3e}, {note}"
    rows = {
        "train RMSE": f"{best.train_rmse:.3e}",
        "test RMSE": f"{best.test_rmse:.3e}{raw}",
        "limit": limit,
        "status": f"{best.status} ({best.advice})",
        "solver": f"{best.solver}, {best.steps} steps, seed {best.seed}",
        "time": f"{best.seconds:.2f} s",
    }
    title = f"{best.unit} of width {best.width}, {best.parameters} parameters, fitted to {best.problem}"
    output.emit({**best.as_row(), **facts}, title, output.pairs(rows.items()), files=(out, plot))


def limit_of_fit(fit: Fit, problem: Problem) -> dict[str, Any]:
    """The theoretical limit of the unit at this width, and the ratio of the test error to it, or a note instead."""
    from gatelab.scaling_laws import limit
    from gatelab.scaling_laws.slopes import noise_of, noise_rmse, set_by_noise

    facts: dict[str, Any] = {"limit": None, "ratio": None, "limit_note": ""}
    try:
        facts["limit"] = limit(fit.unit, problem, fit.width)
    except GatelabError as error:
        return {**facts, "limit_note": str(error)}
    noise = noise_of(problem) or 0.0
    if not facts["limit"]:
        facts["limit_note"] = "the unit can be exact here"
    elif set_by_noise(fit.test_rmse, noise_rmse(problem, noise, fit.parameters)):
        facts["limit_note"] = f"but noise (sigma about {noise:.2g}) sets the test RMSE"
    else:
        facts["ratio"] = fit.test_rmse / facts["limit"]
    return facts
