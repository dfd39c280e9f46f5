"""`gatelab ntk`: how well units train on given inputs, by the condition number of their tangent kernels."""

from __future__ import annotations

import io
import math
import warnings
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gatelab.cli import output, reading
from gatelab.cli.options import Json, Words, grouped, unit_option
from gatelab.cli.output import check_file
from gatelab.cli.reading import SavedModel, check_inputs, read_model
from gatelab.cli.rows import ChosenRows, KernelRowOptions
from gatelab.errors import GatelabError
from gatelab.files import PICTURES, write_whole
from gatelab.memory import check_memory, most_that_fits

if TYPE_CHECKING:
    from gatelab.arrays import Array
    from gatelab.ntk import Estimate, Kernel, Spectrum

UNITS = ("mlp", "glu")
COPIES = 2  # the kernel itself, and its shifted copy, in which the Cholesky factor is made
QUANTILES = {"least": 0.0, "quarter": 0.25, "half": 0.5, "three quarters": 0.75, "greatest": 1.0}
NTK = """Examples: gatelab ntk --gaussian 400,100 --plot spectra.png

gatelab ntk mlp glu gqu friedman1 --width 4096 --rows 300

gatelab ntk --data points.csv --target price --standardise --full --json

gatelab ntk --data points.csv --target price --model mlp.safetensors"""


@dataclass(frozen=True, eq=False)
class MeasuredKernel:
    """A kernel and its spectrum, and what is expected of Gaussian rows of that size, where theory has something.

    The kernel of a unit is None where it need not be saved: several of them may not fit into memory.
    """

    name: str
    spectrum: Spectrum
    expected: Estimate | None
    kernel: Kernel | None

    @property
    def condition(self) -> str:
        """The condition number in words; where rounding hides it, the least that it can be."""
        s = self.spectrum
        if s.status == "resolved":
            return f"{s.condition:.4g}"
        return f">= {s.condition_bounds[0]:.2g}" if math.isfinite(s.condition_bounds[0]) else "-"

    def cells(self) -> list[str]:
        """The row of the table."""
        s, least, doubt, ours, paper = self.spectrum, "0?", "-", None, None
        if s.status != "unresolved":
            least = f"{s.lambda_min:.4g}"
        if s.status == "resolved":
            # Half the interval that the condition number provably lies in, relative to it.
            low, high = s.condition_bounds
            doubt = f"{(high - low) / (2 * s.condition):.0e}"
        if self.expected:
            ours = self.expected.ours.condition
            paper = getattr(self.expected.paper, "condition", None)
        expected = (output.number(ours, ".4g"), output.number(paper, ".4g"))
        return [self.name, f"{s.lambda_max:.4g}", least, self.condition, doubt, *expected]

    def quantiles(self) -> list[str]:
        """The row of the table of eigenvalues."""
        import numpy as np

        assert self.spectrum.eigenvalues is not None
        return [self.name, *(f"{v:.4g}" for v in np.quantile(self.spectrum.eigenvalues, list(QUANTILES.values())))]

    def plain(self) -> dict[str, Any]:
        """The row of the JSON document."""
        s, names = self.spectrum, ("lambda_max", "lambda_min", "condition")
        row: dict[str, Any] = {"kernel": self.name, "status": s.status}
        for name in names:
            row |= {name: getattr(s, name), f"{name}_bounds": getattr(s, f"{name}_bounds")}
        row |= {"gaussian_ours": None, "gaussian_paper": None, "eigenvalues": None}
        for source in ("ours", "paper"):
            law = getattr(self.expected, source, None)
            if law is not None:
                row[f"gaussian_{source}"] = {name: getattr(law, name) for name in names}
        if s.eigenvalues is not None:
            row["eigenvalues"] = s.eigenvalues.tolist()
        return row


@grouped
def ntk_command(
    *,
    words: Words = None,
    source: KernelRowOptions,
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
    units, problem = reading.units(words, unit)
    from gatelab.feedforward import unit as find_unit

    if model is None:
        names = list(dict.fromkeys(find_unit(name).name for name in units or UNITS))
        if save and save.suffix.lower() == ".npy" and len(names) > 1:
            raise GatelabError(
                f"{save} holds one kernel and there are {len(names)} units; give a name that ends in .npz"
            )
        rows = source.read(problem)
        together = fit_together(rows.n, len(names))
        kernels = _kernels_of_units(rows, names, width, together=together, full=full, keep=save is not None)
        network = f"at width {width}" if width else "per neuron, infinitely wide"
    else:
        if units or width is not None:
            raise GatelabError(f"{model} says what its unit and width are; leave --unit and --width out")
        if source.standardise:
            raise GatelabError(f"{model} says how its inputs are scaled; leave --standardise out and give raw rows")
        saved = read_model(model)
        if problem:
            source = replace(source, standardise=False)  # the model scales raw rows by itself
        rows = source.read(problem, names=saved.columns)
        check_inputs(model, saved, rows.d)
        fit_together(rows.n, 1)
        kernels = [_kernel_of_model(rows, saved, full=full)]
        network = f"of the network in {model}"
    if save:
        save_kernels(save, {k.name: k.kernel for k in kernels})
    if plot:
        _plot(kernels, rows, plot)
    notes = _notes(kernels, rows)
    if as_json:
        about = {"data": rows.name, "n": rows.n, "d": rows.d, "width": width, "model": model}
        output.document(
            {**about, "kernels": [k.plain() for k in kernels], "notes": notes, "figure": plot, "saved": save}
        )
        return
    _print(kernels, rows, network, notes)
    output.say_written(plot, save)


# ---- what is computed


def fit_together(n: int, kernels: int) -> bool:
    """Whether the kernels of n rows fit into memory at once; an error where not even one of them does."""
    size = 8 * n * n
    most = max(1, int(most_that_fits(8 * COPIES) ** 0.5))
    check_memory(COPIES * size, f"the kernel of {n} rows with its factors", f"give --rows {most} or fewer")
    return COPIES - 1 + kernels <= most_that_fits(size)


def _kernels_of_units(
    rows: ChosenRows, names: list[str], width: int | None, *, together: bool, full: bool, keep: bool
) -> list[MeasuredKernel]:
    """In one pass over the rows where all kernels fit, else one after the other."""
    from gatelab.ntk import analytic, estimate

    measured: list[MeasuredKernel] = []
    groups = [names]
    if not together:
        groups = [[name] for name in names]
    for group in groups:
        with output.progress(f"kernel of {', '.join(group)}") as report:
            kernels = list(analytic(list(group), rows.x, width, progress=report))
        with output.progress("eigenvalues") as report:
            for name in group:
                kernel, expected = kernels.pop(0), None
                with suppress(GatelabError):  # theory has relu's powers in two dimensions or more
                    expected = estimate(name, rows.n, rows.d, width)
                measured.append(MeasuredKernel(name, _spectrum(kernel, full), expected, kernel if keep else None))
                report(len(measured), len(names))
    return measured


def _kernel_of_model(rows: ChosenRows, saved: SavedModel, *, full: bool) -> MeasuredKernel:
    """The kernel of the network as it is, at the rows as it takes them; of several outputs the sum."""
    import torch

    from gatelab.ntk import empirical

    x = torch.as_tensor(saved.scaled(rows.x))
    with output.progress("kernel of the network") as report:
        kernel = empirical(saved.network, x, outputs=torch.Tensor.clone, progress=report)
    return MeasuredKernel(saved.name, _spectrum(kernel, full), None, kernel)


def _spectrum(kernel: Kernel, full: bool) -> Spectrum:
    from gatelab.ntk import spectrum

    with warnings.catch_warnings():
        # What it warns of is in its notes, and is said below with what the rows have to do with it.
        warnings.simplefilter("ignore", UserWarning)
        return spectrum(kernel, full=full)


def save_kernels(path: Path, kernels: dict[str, Any]) -> None:
    """One kernel as .npy, several as .npz by their units; whole or not at all."""
    import numpy as np

    content = io.BytesIO()
    if path.suffix.lower() == ".npy":
        np.save(content, next(iter(kernels.values())).numpy())
    else:
        np.savez(content, **{name: kernel.numpy() for name, kernel in kernels.items()})
    write_whole(path, content.getvalue())


# ---- what it prints


def _print(kernels: list[MeasuredKernel], rows: ChosenRows, network: str, notes: list[str]) -> None:
    output.say(f"{rows.name}: kernels of {rows.n} rows of {rows.d} inputs, {network}", "")
    headings = ("kernel", "lambda_max", "lambda_min", "condition", "±", "Gaussian", "paper's")
    output.table(headings, [k.cells() for k in kernels], right=range(1, 7))
    if any(k.spectrum.eigenvalues is not None for k in kernels):
        output.say("")
        output.table(("eigenvalues", *QUANTILES), [k.quantiles() for k in kernels], right=range(1, 6))
    output.say("", "±: how far the condition number may be off, relative to it, proved")
    if any(k.expected for k in kernels):
        size = f"{rows.n} Gaussian rows of {rows.d} inputs"
        output.say(f"Gaussian: the condition number to be expected of {size}; paper's: by the paper's formula")
    if notes:
        output.say("", *notes)


def _notes(kernels: list[MeasuredKernel], rows: ChosenRows) -> list[str]:
    """What the spectra say of themselves, and why a condition number cannot be had."""
    notes = [f"{k.name}: {note}" for k in kernels for note in k.spectrum.notes]
    if all(k.spectrum.status == "resolved" for k in kernels):
        return notes
    if reason := alike(rows.x):
        return [*notes, f"the reason: {reason}; without biases, such rows have dependent gradients"]
    return [
        *notes,
        f"no two rows are alike, but {rows.n} rows of {rows.d} inputs are more than the kernel can tell "
        "apart in double precision; give fewer with --rows",
    ]


def alike(x: Array) -> str:
    """What makes a kernel singular in these rows, in words; nothing if nothing does.

    >>> import numpy as np
    >>> alike(np.array([[1.0, 2.0], [1.0, 2.0], [0.0, 0.0], [3.0, 6.0]]))
    '1 row is a copy of another, 1 row is zero, 1 row is a multiple of another'
    """
    import numpy as np

    x = x + 0.0  # -0.0 and 0.0 are the same number in different bits
    distinct = np.unique(x, axis=0)
    length = np.linalg.norm(distinct, axis=1)
    nonzero = distinct[length > 0] / length[length > 0, None]
    directions = len(np.unique(nonzero.round(13) + 0.0, axis=0))
    counts = (
        (len(x) - len(distinct), "a copy of another", "copies of others"),
        (int((length == 0).sum()), "zero", "zero"),
        (len(nonzero) - directions, "a multiple of another", "multiples of others"),
    )
    return ", ".join(
        f"1 row is {single}" if k == 1 else f"{k} rows are {several}" for k, single, several in counts if k
    )


def _plot(kernels: list[MeasuredKernel], rows: ChosenRows, path: Path) -> None:
    from gatelab.plotting import save
    from gatelab.plotting.kernels import DensityCurve, density_figure

    log = all(k.spectrum.status == "resolved" for k in kernels) and max(k.spectrum.condition for k in kernels) > 30
    curves = []
    for k in kernels:
        x, density = k.spectrum.density(log=log)
        ends = (k.spectrum.lambda_min, k.spectrum.lambda_max)
        curves.append(DensityCurve(k.name, x, density, ends, f"condition {k.condition}"))
        if k.expected is not None and rows.gaussian:
            positive = x[x > 0]
            expected = k.expected.density(positive)
            if log:
                expected = expected * (positive * math.log(10))
            curves.append(DensityCurve(k.name, positive, expected, note="our law of the bulk", line="--"))
    save(density_figure(curves, log=log, title=f"{rows.name}: {rows.n} rows, {rows.d} inputs"), path)
