"""`gatelab ntk`: how well units train on given inputs, by the condition number of their tangent kernels."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gatelab.cli import output, reading
from gatelab.cli.fit import Data, Inputs, Standardise, Target
from gatelab.cli.lists import Json, Words, unit_option
from gatelab.cli.output import check_file
from gatelab.cli.reading import SavedModel, check_inputs, read_model
from gatelab.cli.rows import ChosenRows, alike, check_kernels, read_rows, save_kernels
from gatelab.errors import GatelabError
from gatelab.files import PICTURES

if TYPE_CHECKING:
    from gatelab.ntk import Estimate, Kernel, Spectrum

UNITS = ("mlp", "glu")
NTK = """Examples: gatelab ntk --gaussian 400,100 --plot spectra.png

gatelab ntk mlp glu gqu friedman1 --width 4096 --rows 300

gatelab ntk --data points.csv --target price --standardise --full --json

gatelab ntk --data points.csv --target price --model mlp.safetensors"""


@dataclass(frozen=True, eq=False)
class KernelRow:
    """One kernel's spectrum, and what is expected of Gaussian rows of that size, where theory has something."""

    name: str
    spectrum: Spectrum
    expected: Estimate | None


def ntk_command(
    words: Words = None,
    data: Data = None,
    target: Target = None,
    inputs: Inputs = None,
    no_target: Annotated[bool, typer.Option("--no-target", help="Every column is an input.")] = False,
    gaussian: Annotated[str | None, typer.Option(metavar="ROWS,INPUTS", help="Standard Gaussian rows instead.")] = None,
    standardise: Standardise = None,
    rows: Annotated[int | None, typer.Option(min=1, help="Draw so many rows.", show_default="all, to 20000")] = None,
    seed: Annotated[int, typer.Option(min=0, help="The seed of what is drawn.")] = 0,
    unit: Annotated[list[str] | None, unit_option("mlp,glu")] = None,
    width: Annotated[int | None, typer.Option(min=1, help="Neurons.", show_default="infinite: K per neuron")] = None,
    model: Annotated[Path | None, typer.Option(metavar="FILE", help="A saved network instead, .safetensors.")] = None,
    full: Annotated[bool, typer.Option("--full", help="All eigenvalues, not the extremes alone.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Write the densities, .png, .svg or .pdf.")] = None,
    save: Annotated[Path | None, typer.Option(help="Write the kernel, .npy, or several, .npz.")] = None,
    as_json: Json = False,
) -> None:
    """Condition numbers of tangent kernels on your data."""
    check_file(plot, PICTURES)
    check_file(save, (".npy", ".npz"))
    given, problem = reading.units(words, unit)
    names = _units(given, model, width, save)
    saved = None if model is None else _read(model, standardise)
    if saved and problem:
        standardise = False  # the model scales raw rows by itself
    chosen = read_rows(
        problem,
        data,
        gaussian,
        target=target,
        inputs=inputs,
        all_inputs=no_target,
        standardise=standardise,
        rows=rows,
        seed=seed,
        names=saved.columns if saved else (),
    )
    if model and saved:
        check_inputs(model, saved, chosen.d)
    together = check_kernels(chosen.n, len(names))
    keep: dict[str, Kernel] | None = {} if save else None
    found = _of_model(chosen, saved, full, keep) if saved else _of_units(chosen, names, width, full, together, keep)
    if save and keep is not None:
        save_kernels(save, keep)
    if plot:
        _plot(found, chosen, plot)
    notes = _notes(found, chosen)
    if as_json:
        what = {"data": chosen.name, "n": chosen.n, "d": chosen.d, "width": width, "model": model}
        output.document({**what, "kernels": [_row(f) for f in found], "notes": notes, "figure": plot, "saved": save})
        return
    _print(found, chosen, width, model, notes)
    for file in (plot, save):
        if file:
            output.say(f"wrote {file}", wrap=False)


def _units(given: list[str], model: Path | None, width: int | None, save: Path | None) -> list[str]:
    from gatelab.feedforward import unit as find

    if model is not None:
        if given or width is not None:
            raise GatelabError(f"{model} says what its unit and width are; leave --unit and --width out")
        return [""]
    found = list(dict.fromkeys(find(name).name for name in given or UNITS))
    if save and save.suffix.lower() == ".npy" and len(found) > 1:
        raise GatelabError(f"{save} holds one kernel and there are {len(found)} units; give a name that ends in .npz")
    return found


def _of_units(
    chosen: ChosenRows, names: list[str], width: int | None, full: bool, together: bool, keep: dict[str, Kernel] | None
) -> list[KernelRow]:
    """In one pass over the rows where all kernels fit, else one after the other."""
    from gatelab.ntk import analytic

    found: list[KernelRow] = []
    groups = [names] if together else [[name] for name in names]
    for group in groups:
        with output.progress(f"kernel of {', '.join(group)}") as report:
            kernels = list(analytic(list(group), chosen.x, width, progress=report))
        with output.progress("eigenvalues") as report:
            for name in group:
                kernel = kernels.pop(0)
                found.append(KernelRow(name, _spectrum(kernel, full), _expected(name, chosen, width)))
                if keep is not None:
                    keep[name] = kernel
                report(len(found), len(names))
    return found


def _read(path: Path, standardise: bool | None) -> SavedModel:
    if standardise:
        raise GatelabError(f"{path} says how its inputs are scaled; leave --standardise out and give raw rows")
    return read_model(path)


def _of_model(chosen: ChosenRows, saved: SavedModel, full: bool, keep: dict[str, Kernel] | None) -> list[KernelRow]:
    """The kernel of the network as it is, at the rows as it takes them; of several outputs the sum."""
    import torch

    from gatelab.ntk import empirical

    x = torch.as_tensor(saved.scaled(chosen.x))
    with output.progress("kernel of the network") as report:
        kernel = empirical(saved.network, x, outputs=torch.Tensor.clone, progress=report)
    if keep is not None:
        keep[saved.name] = kernel
    return [KernelRow(saved.name, _spectrum(kernel, full), None)]


def _spectrum(kernel: Kernel, full: bool) -> Spectrum:
    from gatelab.ntk import spectrum

    with warnings.catch_warnings():
        # What it warns of is in its notes, and is said below with what the rows have to do with it.
        warnings.simplefilter("ignore", UserWarning)
        return spectrum(kernel, full=full)


def _expected(name: str, chosen: ChosenRows, width: int | None) -> Estimate | None:
    from gatelab.ntk import estimate

    try:
        return estimate(name, chosen.n, chosen.d, width)
    except GatelabError:
        return None  # theory has relu's powers in two dimensions or more


# ---- what it prints


def _row(f: KernelRow) -> dict[str, Any]:
    s, e = f.spectrum, f.expected
    row: dict[str, Any] = {"kernel": f.name, "status": s.status}
    for what in ("lambda_max", "lambda_min", "condition"):
        row |= {what: getattr(s, what), f"{what}_bounds": getattr(s, f"{what}_bounds")}
    for who in ("ours", "paper"):
        known = getattr(e, who, None)
        names = ("lambda_max", "lambda_min", "condition")
        row[f"gaussian_{who}"] = None if known is None else {name: getattr(known, name) for name in names}
    return row | {"eigenvalues": None if s.eigenvalues is None else s.eigenvalues.tolist()}


def _print(found: list[KernelRow], chosen: ChosenRows, width: int | None, model: Path | None, notes: list[str]) -> None:
    how = f"of the network in {model}" if model else f"at width {width}" if width else "per neuron, infinitely wide"
    output.say(f"{chosen.name}: kernels of {chosen.n} rows of {chosen.d} inputs, {how}", "")
    right = (1, 2, 3, 4, 5, 6)
    output.table(
        ("kernel", "lambda_max", "lambda_min", "condition", "±", "Gaussian", "paper's"),
        [
            [
                f.name,
                f"{f.spectrum.lambda_max:.4g}",
                f"{f.spectrum.lambda_min:.4g}" if f.spectrum.status != "unresolved" else "0?",
                _condition(f.spectrum),
                _doubt(f.spectrum),
                output.number(f.expected.ours.condition if f.expected else None, ".4g"),
                output.number(f.expected.paper.condition if f.expected and f.expected.paper else None, ".4g"),
            ]
            for f in found
        ],
        right=right,
    )
    if any(f.spectrum.eigenvalues is not None for f in found):
        output.say("")
        output.table(("eigenvalues", *QUANTILES), [[f.name, *_quantiles(f.spectrum)] for f in found], right=right[:5])
    output.say("", "±: how far the condition number may be off, relative to it, proved")
    if any(f.expected for f in found):
        size = f"{chosen.n} Gaussian rows of {chosen.d} inputs"
        output.say(f"Gaussian: the condition number to be expected of {size}; paper's: by the paper's formula")
    output.say(*([""] if notes else []), *notes)


QUANTILES = {"least": 0.0, "quarter": 0.25, "half": 0.5, "three quarters": 0.75, "greatest": 1.0}


def _quantiles(s: Spectrum) -> list[str]:
    import numpy as np

    assert s.eigenvalues is not None
    return [f"{value:.4g}" for value in np.quantile(s.eigenvalues, list(QUANTILES.values()))]


def _condition(s: Spectrum) -> str:
    if s.status == "resolved":
        return f"{s.condition:.4g}"
    return f">= {s.condition_bounds[0]:.2g}" if math.isfinite(s.condition_bounds[0]) else "-"


def _doubt(s: Spectrum) -> str:
    """Half the interval that the condition number provably lies in, relative to it."""
    if s.status != "resolved":
        return "-"
    low, high = s.condition_bounds
    return f"{(high - low) / (2 * s.condition):.0e}"


def _notes(found: list[KernelRow], chosen: ChosenRows) -> list[str]:
    notes = [f"{f.name}: {note}" for f in found for note in f.spectrum.notes]
    if any(f.spectrum.status != "resolved" for f in found):
        why = alike(chosen.x)
        notes.append(
            f"the reason: {why}; without biases, such rows have dependent gradients"
            if why
            else f"no two rows are alike, but {chosen.n} rows of {chosen.d} inputs are more than the kernel can tell "
            "apart in double precision; give fewer with --rows"
        )
    return notes


def _plot(found: list[KernelRow], chosen: ChosenRows, path: Path) -> None:
    from gatelab.plotting import save
    from gatelab.plotting.kernels import DensityCurve, density_figure

    log = all(f.spectrum.status == "resolved" for f in found) and max(f.spectrum.condition for f in found) > 30
    curves = []
    for f in found:
        x, density = f.spectrum.density(log=log)
        note = f"condition {_condition(f.spectrum)}"
        ends = (f.spectrum.lambda_min, f.spectrum.lambda_max)
        curves.append(DensityCurve(f.name, x, density, ends, note))
        if f.expected is not None and chosen.gaussian:
            at = x[x > 0]
            expected = f.expected.density(at) * (at * math.log(10) if log else 1)
            curves.append(DensityCurve(f.name, at, expected, note="our law of the bulk", line="--"))
    save(density_figure(curves, log=log, title=f"{chosen.name}: {chosen.n} rows, {chosen.d} inputs"), path)
