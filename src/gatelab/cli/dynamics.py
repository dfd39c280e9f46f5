"""`gatelab dynamics`: how the losses of units fall by gradient descent, and where they cross."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gatelab.cli import output, reading
from gatelab.cli.fit import Data, Inputs, Standardise, Target
from gatelab.cli.lists import Json, Words, unit_option
from gatelab.cli.output import check_file
from gatelab.errors import GatelabError
from gatelab.files import PICTURES
from gatelab.memory import check_memory

if TYPE_CHECKING:
    import numpy as np

    from gatelab.dynamics import Crossing, MeasuredCrossing, Training, Trajectory
    from gatelab.ntk import Kernel

UNITS = ("mlp", "glu")
ROWS = 300
DYNAMICS = """Examples: gatelab dynamics --gaussian 60,30 --plot curves.png

gatelab dynamics mlp glu gqu friedman1 --width 2048 --measure

gatelab dynamics --data points.csv --target price --standardise --json"""


@dataclass(frozen=True, eq=False)
class TrainedUnit:
    """One unit: its kernel's ends, its expected loss, and its networks where they were trained."""

    name: str
    kernel: Kernel
    nngp: Kernel
    ends: tuple[float, float]
    expected: Trajectory
    trained: Training | None = None


def dynamics_command(
    words: Words = None,
    data: Data = None,
    target: Target = None,
    inputs: Inputs = None,
    gaussian: Annotated[str | None, typer.Option(metavar="ROWS,INPUTS", help="Gaussian rows and targets.")] = None,
    standardise: Standardise = None,
    rows: Annotated[int, typer.Option(min=2, help="Draw at most so many rows.")] = ROWS,
    seed: Annotated[int, typer.Option(min=0, help="The seed of what is drawn.")] = 0,
    unit: Annotated[list[str] | None, unit_option("mlp,glu")] = None,
    width: Annotated[int, typer.Option(min=1, help="Neurons.")] = 1024,
    lr: Annotated[float | None, typer.Option(help="Step.", show_default="half of what is stable for all")] = None,
    steps: Annotated[int, typer.Option(min=1, help="Steps of gradient descent.")] = 100,
    measure: Annotated[bool, typer.Option("--measure", help="Train networks too.")] = False,
    seeds: Annotated[int, typer.Option(min=1, help="How many, with --measure.")] = 5,
    plot: Annotated[Path | None, typer.Option(help="Write the curves, .png, .svg or .pdf.")] = None,
    as_json: Json = False,
) -> None:
    """Expected losses by gradient descent, and where they cross."""
    check_file(plot, PICTURES)
    given, problem = reading.units(words, unit)
    names = _units(given)
    X, y, called = _rows(problem, data, target, inputs, gaussian, standardise, rows, seed)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", UserWarning)
        found = _predict(names, X, y, width, lr, steps)
        if measure:
            found = _train(found, X, y, width, steps, seeds)
        crossings = _crossings(found, y, steps)
    notes = list(dict.fromkeys(str(w.message) for w in said if issubclass(w.category, UserWarning)))
    if plot:
        _plot(found, called, plot)
    about = {"data": called, "n": len(X), "d": X.shape[1], "width": width, "lr": found[0].expected.lr, "steps": steps}
    if as_json:
        output.document(
            {
                **about,
                "units": [_unit_row(f) for f in found],
                "crossings": [_crossing_row(*c) for c in crossings],
                "notes": notes,
                "figure": plot,
            }
        )
        return
    _print(found, crossings, about, notes)
    if plot:
        output.say(f"wrote {plot}", wrap=False)


# ---- what is given


def _units(given: list[str]) -> list[str]:
    from gatelab.feedforward import unit as find

    return list(dict.fromkeys(find(name).name for name in given or UNITS))


def _rows(
    problem: str | None,
    data: Path | None,
    target: str | None,
    inputs: str | None,
    gaussian: str | None,
    standardise: bool | None,
    rows: int,
    seed: int,
) -> tuple[np.ndarray, np.ndarray, str]:
    """Samples, targets, and what they are called."""
    import numpy as np

    given = [name for name, value in (("a problem", problem), ("--data", data), ("--gaussian", gaussian)) if value]
    if len(given) != 1:
        raise GatelabError(
            f"{' and '.join(given) or 'nothing'} is given; give one of them: a problem such as friedman1, --data FILE, "
            "or --gaussian 60,30"
        )
    generator = np.random.default_rng(seed)
    if gaussian:
        if standardise is not None or target is not None or inputs is not None:
            raise GatelabError("Gaussian rows have no columns to choose or to scale; leave those options out")
        n, d = _pair(gaussian)
        check_memory(8 * n * d, f"{n} Gaussian rows of {d} inputs", "give fewer")
        return generator.standard_normal((n, d)), generator.standard_normal(n), f"Gaussian, seed {seed}"
    chosen = reading.target(problem, data, target=target, inputs=inputs, standardise=standardise)
    X, y = np.asarray(chosen.train.x), np.asarray(chosen.train.y)
    if len(X) <= rows:
        return X, y, chosen.name
    kept = np.sort(generator.choice(len(X), rows, replace=False))
    return X[kept], y[kept], f"{chosen.name}, {rows} of {len(X)} rows"


def _pair(text: str) -> tuple[int, int]:
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 2 or not all(p.isascii() and p.isdecimal() and 0 < int(p) <= 10**5 for p in parts):
        raise GatelabError(f"--gaussian is {text!r}; give rows and inputs, such as --gaussian 60,30")
    return int(parts[0]), int(parts[1])


# ---- what is found


def _predict(
    names: list[str], X: np.ndarray, y: np.ndarray, width: int, lr: float | None, steps: int
) -> list[TrainedUnit]:
    from gatelab.dynamics import expected_loss, stable_step
    from gatelab.ntk import analytic

    with output.progress("kernels") as report:
        kernels = analytic(list(names), X, width, progress=report)
        nngp = analytic(list(names), X, kind="nngp")
    stable = [stable_step(K) for K in kernels]
    step = min(s.limit for s in stable) / 2 if lr is None else lr
    return [
        TrainedUnit(name, K, N, (s.lambda_max, s.lambda_min), expected_loss(K, y, width, step, steps, nngp=N))
        for name, K, N, s in zip(names, kernels, nngp, stable, strict=True)
    ]


def _train(
    found: list[TrainedUnit], X: np.ndarray, y: np.ndarray, width: int, steps: int, seeds: int
) -> list[TrainedUnit]:
    from dataclasses import replace

    from gatelab.dynamics import in_span, train

    small, made = in_span(X), []
    for f in found:
        with output.progress(f"training {f.name}") as report:
            run = train(f.name, small, y, width, f.expected.lr, steps, seeds=seeds, fan_in=X.shape[1], progress=report)
        made.append(replace(f, trained=run))
    return made


def _crossings(found: list[TrainedUnit], y: np.ndarray, steps: int) -> list[tuple[Crossing, MeasuredCrossing | None]]:
    """Of the first unit with every other."""
    from gatelab.dynamics import crossing, measured_crossing

    made = []
    first = found[0]
    for other in found[1:]:
        pair = crossing(first.kernel, other.kernel, y, lr=first.expected.lr, nngp=(first.nngp, other.nngp), steps=steps)
        measured = None
        if first.trained is not None and other.trained is not None:
            fine = not any((t.diverged >= 0).any() for t in (first.trained, other.trained))
            measured = measured_crossing(first.trained, other.trained) if fine else None
        made.append((pair, measured))
    return made


# ---- what is said


def _unit_row(f: TrainedUnit) -> dict[str, Any]:
    row: dict[str, Any] = {
        "unit": f.name,
        "lambda_max": f.ends[0],
        "lambda_min": f.ends[1],
        "stable": f.expected.stable,
        "step": f.expected.steps.tolist(),
        "loss": f.expected.loss.tolist(),
        "bias": f.expected.bias.tolist(),
        "variance": f.expected.variance.tolist(),
    }
    if f.trained is not None:
        low, high = f.trained.interval()
        row["measured"] = {
            "seeds": list(f.trained.seeds),
            "step": f.trained.steps.tolist(),
            "mean": f.trained.mean.tolist(),
            "low": low.tolist(),
            "high": high.tolist(),
            "diverged": f.trained.diverged.tolist(),
        }
    return row


def _crossing_row(c: Crossing, measured: MeasuredCrossing | None) -> dict[str, Any]:
    return {
        "units": list(c.labels),
        "step": c.step,
        "loss": c.loss,
        "changes": list(c.changes),
        "reason": c.reason,
        "first": c.first,
        "last": c.last,
        "early": {"holds": c.early.holds, "start": c.early.start, "signal": c.early.signal, "spread": c.early.spread},
        "late": {"holds": c.late.holds, "lambda_min": c.late.lambda_min, "bound": c.late.bound},
        "verdict": c.verdict,
        "measured": measured,
    }


def _print(
    found: list[TrainedUnit],
    crossings: list[tuple[Crossing, MeasuredCrossing | None]],
    about: dict[str, Any],
    notes: list[str],
) -> None:
    import numpy as np

    output.say(
        f"{about['data']}: n = {about['n']}, d = {about['d']}, width {about['width']}, lr {about['lr']:.3g}; "
        "loss (1/2)|f - y|^2",
        "",
    )
    last = about["steps"]
    at = sorted({0, last // 4, last // 2, last})
    headings = ("unit", "l_max", "l_min", *(f"step {t}" for t in at))
    rows = []
    for f in found:
        cells = [output.number(v, ".3g") for v in (*f.ends, *f.expected.loss[at])]
        rows.append((f.name, *cells))
        if f.trained is not None:
            where = np.searchsorted(f.trained.steps, at)
            rows.append(("  trained", "", "", *(f"{v:.3g}" for v in f.trained.mean[where])))
    output.table(headings, rows, right=tuple(range(1, len(headings))))
    output.say("")
    for c, measured in crossings:
        output.say(f"{c.labels[0]}, {c.labels[1]}: {c.verdict}")
        if measured is not None:
            output.say(f"  trained networks ({measured.seeds[0]} seeds) cross at step {measured}")
    output.points(notes)


def _plot(found: list[TrainedUnit], called: str, path: Path) -> None:
    from gatelab.plotting import looks, save
    from gatelab.plotting.kernels import LossCurve, losses_figure

    colours = looks(f.name for f in found)
    curves = []
    for f in found:
        colour = colours[f.name].colour
        if f.trained is not None:
            curves.append(
                LossCurve(f"{f.name}, trained", f.trained.steps, f.trained.mean, *f.trained.interval(), colour)
            )
        curves.append(LossCurve(f"{f.name}, expected", f.expected.steps, f.expected.loss, None, None, colour, True))
    save(losses_figure(curves, called), path)
