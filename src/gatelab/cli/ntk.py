"""`gatelab ntk`: condition numbers of the tangent kernels of units, which set how fast they train."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from gatelab.cli import output, reading
from gatelab.cli.options import Plot, Words, option, out_option, unit_option
from gatelab.cli.rows import ChosenRows, KernelRowOptions
from gatelab.errors import GatelabError
from gatelab.feedforward.named import unit_name
from gatelab.files import write_whole
from gatelab.memory import check_memory, most_that_fits

if TYPE_CHECKING:
    from gatelab.ntk import Estimate, Kernel, Spectrum

COPIES = 2  # the kernel itself, and its shifted copy, in which the Cholesky factor is made
QUANTILES = {"least": 0.0, "quarter": 0.25, "half": 0.5, "three quarters": 0.75, "greatest": 1.0}
NTK = """Examples: gatelab ntk --gaussian 400,100 --plot spectra.png
gatelab ntk mlp glu gqu friedman1 --width 4096 --rows 300
gatelab ntk --data points.csv --target price --standardize --full --json"""


@dataclass(frozen=True, eq=False)
class MeasuredKernel:
    """A kernel and its spectrum, and the expected values for Gaussian rows of that size, where theory has them.

    The kernel is None unless it is saved: several kernels may not fit into memory.
    """

    name: str
    spectrum: Spectrum
    expected: Estimate | None
    kernel: Kernel | None

    def row(self) -> dict[str, Any]:
        """The row of the table, with a lower bound of the condition number where rounding hides it."""
        s, least, doubt = self.spectrum, "0?", "-"
        low, high = s.condition_bounds
        condition = f">= {low:.2g}" if math.isfinite(low) else "-"
        if s.status != "unresolved":
            least = f"{s.lambda_min:.4g}"
        if s.status == "resolved":
            # Half of the proved interval, relative to the condition number.
            condition, doubt = f"{s.condition:.4g}", f"{(high - low) / (2 * s.condition):.0e}"
        row = {"kernel": self.name, "lambda_max": s.lambda_max, "lambda_min": least, "condition": condition}
        ours, paper = (getattr(getattr(self.expected, law, None), "condition", None) for law in ("ours", "paper"))
        return {**row, "±": doubt, "Gaussian": ours, "paper's": paper}

    def facts(self) -> dict[str, Any]:
        s, names = self.spectrum, ("lambda_max", "lambda_min", "condition")
        row: dict[str, Any] = {"kernel": self.name, "status": s.status}
        for name in names:
            row |= {name: getattr(s, name), f"{name}_bounds": getattr(s, f"{name}_bounds")}
        for source in ("ours", "paper"):
            law = getattr(self.expected, source, None)
            row[f"gaussian_{source}"] = law and {name: getattr(law, name) for name in names}
        return {**row, "eigenvalues": s.eigenvalues}


def ntk_command(
    *,
    words: Words = None,
    source: KernelRowOptions,
    unit: Annotated[list[str] | None, unit_option("mlp,glu")] = None,
    width: Annotated[int | None, option("Neurons.", min=1, default="infinite: K per neuron")] = None,
    full: Annotated[bool, option("All eigenvalues, not only the extremes.", "--full")] = False,
    plot: Plot = None,
    out: Annotated[Path | None, out_option("Write the kernel, .npy, or several, .npz.", ".npy", ".npz")] = None,
) -> None:
    """Condition numbers of tangent kernels on your data."""
    names, problem = reading.units(words, unit)
    names = list(dict.fromkeys(map(unit_name, names)))
    names = names or ["mlp", "glu"]
    if out and out.suffix.lower() == ".npy" and len(names) > 1:
        raise GatelabError(f"{out} holds one kernel, not those of {len(names)} units; give a name that ends in .npz")
    rows = source.read(problem)
    kernels = kernels_of_units(rows, names, width, full=full, keep=out is not None)
    network = f"at width {width}" if width else "per neuron, infinitely wide"
    if out:
        save_kernels(out, {k.name: k.kernel for k in kernels})
    if plot:
        draw_densities(kernels, rows, plot)
    notes = notes_of(kernels, rows)
    about = {"data": rows.name, "n": rows.n, "d": rows.d, "width": width}
    output.emit(
        {**about, "kernels": [k.facts() for k in kernels], "notes": notes},
        f"{rows.name}: kernels of {rows.n} rows of {rows.d} inputs, {network}",
        "",
        *tables(kernels, rows),
        *[""] * bool(notes),
        *notes,
        files=(plot, out),
    )


# ---- computing


def check_rows(n: int) -> None:
    most = max(1, int(most_that_fits(8 * COPIES) ** 0.5))
    check_memory(COPIES * 8 * n * n, f"the kernel of {n} rows with its factors", f"give --rows {most} or fewer")


def kernels_of_units(
    rows: ChosenRows, names: list[str], width: int | None, *, full: bool, keep: bool
) -> list[MeasuredKernel]:
    """One after the other, since several kernels may not fit into memory."""
    from gatelab.ntk import analytic, estimate

    check_rows(rows.n)
    measured: list[MeasuredKernel] = []
    for name in names:
        with output.progress(f"kernel of {name}") as report:
            kernel, expected = analytic(name, rows.x, width, progress=report), None
        with suppress(GatelabError):  # theory covers powers of relu in two dimensions or more
            expected = estimate(name, rows.n, rows.d, width)
        measured.append(MeasuredKernel(name, spectrum_of(kernel, full), expected, kernel if keep else None))
    return measured


def spectrum_of(kernel: Kernel, full: bool) -> Spectrum:
    from gatelab.ntk import spectrum

    with warnings.catch_warnings(category=UserWarning, action="ignore"):  # they are in its notes as well
        return spectrum(kernel, full=full)


def save_kernels(path: Path, kernels: dict[str, Any]) -> None:
    import numpy as np

    content = io.BytesIO()
    if path.suffix.lower() == ".npy":
        np.save(content, next(iter(kernels.values())).numpy())
    else:
        np.savez(content, **{name: kernel.numpy() for name, kernel in kernels.items()})
    write_whole(path, content.getvalue())


# ---- showing


def tables(kernels: list[MeasuredKernel], rows: ChosenRows) -> Iterator[output.Part]:
    """The ends of the spectra, and quantiles of those that were computed completely."""
    import numpy as np

    yield output.table([k.row() for k in kernels])
    quantiles = [
        {
            "eigenvalues": k.name,
            **{name: float(np.quantile(k.spectrum.eigenvalues, q)) for name, q in QUANTILES.items()},
        }
        for k in kernels
        if k.spectrum.eigenvalues is not None
    ]
    if quantiles:
        yield from ("", output.table(quantiles))
    yield from ("", "±: proved relative error of the condition number")
    if any(k.expected for k in kernels):
        size = f"{rows.n} Gaussian rows of {rows.d} inputs"
        yield f"Gaussian: the expected condition number of {size}; paper's: by the formula of the paper"


def notes_of(kernels: list[MeasuredKernel], rows: ChosenRows) -> list[str]:
    """Notes of the spectra, and the reason where a condition number is not resolved."""
    notes = [f"{k.name}: {note}" for k in kernels for note in k.spectrum.notes]
    if all(k.spectrum.status == "resolved" for k in kernels):
        return notes
    same = "rows that are equal or proportional to others have dependent gradients, since there are no biases"
    many = f"{rows.n} rows of {rows.d} inputs may be more than the kernel can distinguish in double precision"
    return [*notes, f"{same}; {many}: give fewer with --rows"]


def draw_densities(kernels: list[MeasuredKernel], rows: ChosenRows, path: Path) -> None:
    from gatelab.plotting import save
    from gatelab.plotting.kernels import PlotLine, density_figure

    log = all(k.spectrum.status == "resolved" for k in kernels) and max(k.spectrum.condition for k in kernels) > 30
    curves = []
    for k in kernels:
        x, density = k.spectrum.density(log=log)
        ends = (k.spectrum.lambda_min, k.spectrum.lambda_max)
        curves.append(PlotLine(k.name, x, density, (0 * density, density), ends, f"condition {k.row()['condition']}"))
        if k.expected is not None and rows.gaussian:
            positive = x[x > 0]
            expected = k.expected.density(positive)
            if log:
                expected = expected * (positive * math.log(10))
            curves.append(PlotLine(k.name, positive, expected, note="our law of the bulk", predicted=True))
    save(density_figure(curves, f"{rows.name}: {rows.n} rows, {rows.d} inputs", log=log), path)
