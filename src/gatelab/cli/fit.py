"""`gatelab fit`: one network; and the options that it shares with `gatelab scale`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gatelab.cli import output, reading
from gatelab.cli.lists import Json, Words, unit_option
from gatelab.cli.output import check_file
from gatelab.errors import GatelabError, unknown_name
from gatelab.files import either
from gatelab.solve.solvers import SOLVERS

if TYPE_CHECKING:
    from gatelab.data import Problem
    from gatelab.solve import Fit

SOLVER_HELP = f"{either(('auto', *SOLVERS))}."

Interval = Annotated[
    str | None, typer.Option(metavar="A,B", help="Where every input lies; R for -R,R.", show_default="-1,1")
]
Points = Annotated[int | None, typer.Option(help="Training points.", show_default="10000, or the problem's own")]
Sampling = Annotated[str, typer.Option(help="random, grid or gauss.")]
Noise = Annotated[float, typer.Option(help="Standard deviation of noise on the training targets.")]
Data = Annotated[Path | None, typer.Option(metavar="FILE", help="CSV, Parquet, .npy or .npz file, for the problem.")]
Target = Annotated[
    str | None,
    typer.Option(metavar="NAME[,NAME]", help="Its columns to predict, by name or number.", show_default="the last"),
]
Inputs = Annotated[
    str | None,
    typer.Option(metavar="NAME[,NAME]", help="Its columns to predict from.", show_default="all others"),
]
Standardise = Annotated[
    bool | None,
    typer.Option(
        "--standardise/--raw",
        help="Inputs and target with mean 0 and deviation 1, or as they are.",
        show_default="standardised for friedman, airfoil, california",
    ),
]
Protocol = Annotated[str, typer.Option(help="split, or paper: test on the training data, as the paper's code does.")]
Solver = Annotated[str, typer.Option(help=SOLVER_HELP)]
Steps = Annotated[
    int | None,
    typer.Option(min=1, help="Most iterations of a network, from its start to its end.", show_default="the solver's"),
]
Ridge = Annotated[float | None, typer.Option(min=0, help="Ridge of varpro, for noisy data.", show_default="0")]
Device = Annotated[str | None, typer.Option(help="Device of varpro, such as cuda.", show_default="cpu")]
Seeds = Annotated[int, typer.Option(min=1, help="How many seeds.")]
Jobs = Annotated[int | None, typer.Option(min=1, help="Processes.", show_default="one a core")]

FIT = """Examples: gatelab fit glu --width 50

gatelab fit glu "exp(sin(3*x))" --width 25 --interval 0,3

gatelab fit mlp --data points.csv --target price --save mlp.safetensors"""


def fit_command(
    words: Words = None,
    units: Annotated[list[str] | None, unit_option()] = None,
    width: Annotated[int, typer.Option(help="Neurons.")] = 50,
    solver: Solver = "auto",
    seed: Annotated[int, typer.Option(min=0, help="The first seed.")] = 0,
    seeds: Seeds = 1,
    steps: Steps = None,
    ridge: Ridge = None,
    device: Device = None,
    interval: Interval = None,
    points: Points = None,
    sampling: Sampling = reading.SAMPLING,
    noise: Noise = reading.NOISE,
    data: Data = None,
    target: Target = None,
    inputs: Inputs = None,
    standardise: Standardise = None,
    protocol: Protocol = "split",
    save: Annotated[Path | None, typer.Option(help="Write the model, .safetensors, for gatelab predict.")] = None,
    as_json: Json = False,
) -> None:
    """Train one network and say how near it is to the limit."""
    check_file(save, (".safetensors",))
    names, problem = reading.units(words, units)
    unit = reading.one_unit(names, "fit")
    check_solver(solver)
    chosen = reading.target(
        problem,
        data,
        interval=reading.interval(interval),
        points=points,
        sampling=sampling,
        noise=noise,
        target=target,
        inputs=inputs,
        standardise=standardise,
        protocol=protocol,
    )
    best = _best(unit, chosen, width, solver, range(seed, seed + seeds), solver_options(steps, ridge, device))
    against = _against(best, chosen)
    row = best.as_row() | {"limit": against.limit, "ratio": against.ratio, "limit_note": against.note, "saved": save}
    if save:
        best.save(save)
    if as_json:
        output.document(row)
        return
    output.say(f"{best.unit} of width {best.width}, {best.parameters} parameters, fitted to {best.problem}")
    raw = f", {best.test_rmse_raw:.3e} in the target's own units" if best.scales is not None else ""
    output.pairs(
        [
            ("train RMSE", f"{best.train_rmse:.3e}"),
            ("test RMSE", f"{best.test_rmse:.3e}{raw}"),
            ("limit", str(against)),
            ("status", f"{best.status} ({best.status.advice})"),
            ("solver", f"{best.solver}, {best.steps} steps, seed {best.seed}"),
            ("time", f"{best.seconds:.2f} s" + (f" for {seeds} seeds" if seeds > 1 else "")),
        ]
    )
    if save:
        output.say(f"saved {save}", wrap=False)


def check_solver(solver: str) -> None:
    """Before the workers start, since in them the same error comes late."""
    if solver not in (known := ("auto", *SOLVERS)):
        raise unknown_name("solver", solver, known)


def solver_options(steps: int | None, ridge: float | None, device: str | None) -> dict[str, Any]:
    """Those that were given: a solver has defaults of its own."""
    return {k: v for k, v in (("steps", steps), ("ridge", ridge), ("device", device)) if v is not None}


def _best(unit: str, problem: Problem, width: int, solver: str, seeds: range, options: dict[str, Any]) -> Fit:
    from gatelab.solve import fit as train

    many = {"seed": seeds.start, "seeds": len(seeds)}
    return train(unit, problem, width, solver=solver, progress=True, **many, **options)


@dataclass(frozen=True)
class _Against:
    """The limit of a fit and how many times that its error is; the note says why one of them is missing."""

    limit: float | None
    ratio: float | None
    note: str

    def __str__(self) -> str:
        if self.limit is None:
            return f"none: {self.note}"
        return f"{self.limit:.3e}, {self.note or f'test RMSE is {self.ratio:.2f} times that'}"


def _against(best: Fit, problem: Problem) -> _Against:
    from gatelab.scaling_laws import limit
    from gatelab.scaling_laws.slopes import noise_of, noise_rmse, set_by_noise

    try:
        bound = limit(best.unit, problem, best.width)
    except GatelabError as error:
        return _Against(None, None, str(error))
    if not bound:
        return _Against(bound, None, "the unit can be exact here")
    noise = noise_of(problem) or 0.0
    if set_by_noise(best.test_rmse, noise_rmse(problem, noise, best.parameters)):
        return _Against(bound, None, f"but noise (sigma about {noise:.2g}) sets the test RMSE")
    return _Against(bound, best.test_rmse / bound, "")
