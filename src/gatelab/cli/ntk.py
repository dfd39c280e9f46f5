"""`gatelab ntk`: condition numbers of the tangent kernels of units, which set how fast they train."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterator
from contextlib import suppress
from itertools import starmap
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
    from gatelab.ntk import Estimate, Spectrum

COPIES = 2  # the kernel itself, and its shifted copy, in which the Cholesky factor is made
QUANTILES = {"least": 0.0, "quarter": 0.25, "half": 0.5, "three quarters": 0.75, "greatest": 1.0}
NTK = """Examples: gatelab ntk --gaussian 400,100 --plot spectra.png
gatelab ntk mlp glu gqu friedman1 --width 4096 --rows 300
gatelab ntk --data points.csv --target price --standardize --full --json"""


Measured = tuple[str, "Spectrum", "Estimate | None"]  # a kernel, and what theory expects for Gaussian rows, if known


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
    names = list(dict.fromkeys(map(unit_name, names or ("mlp", "glu"))))
    if out and out.suffix.lower() == ".npy" and len(names) > 1:
        raise GatelabError(f"{out} holds one kernel, not those of {len(names)} units; give a name that ends in .npz")
    rows = source.read(problem)
    most = max(1, int(most_that_fits(8 * COPIES) ** 0.5))
    what = f"the kernel of {rows.n} rows with its factors"
    check_memory(COPIES * 8 * rows.n**2, what, f"give --rows {most} or fewer")
    from gatelab.ntk import analytic, estimate, spectrum

    measured: list[Measured] = []
    kernels = {}
    for name in names:  # several kernels may not fit into memory
        with output.progress(f"kernel of {name}") as report:
            kernel, expected = analytic(name, rows.x, width, progress=report), None
        if out:
            kernels[name] = kernel.numpy()
        with suppress(GatelabError):  # theory covers powers of relu in two dimensions or more
            expected = estimate(name, rows.n, rows.d, width)
        with warnings.catch_warnings(category=UserWarning, action="ignore"):  # they are in its notes as well
            measured.append((name, spectrum(kernel, full=full), expected))
    if out:
        save_kernels(out, kernels)
    if plot:
        draw_densities(measured, rows, plot)
    notes = notes_of(measured, rows)
    network = f"at width {width}" if width else "per neuron, infinitely wide"
    about = {"data": rows.name, "n": rows.n, "d": rows.d, "width": width}
    output.emit(
        {**about, "kernels": list(starmap(facts_of, measured)), "notes": notes},
        f"{rows.name}: kernels of {rows.n} rows of {rows.d} inputs, {network}",
        "",
        *tables(measured, rows),
        *[""] * bool(notes),
        *notes,
        files=(plot, out),
    )


def save_kernels(path: Path, kernels: dict[str, Any]) -> None:
    import numpy as np

    content = io.BytesIO()
    if path.suffix.lower() == ".npy":
        np.save(content, next(iter(kernels.values())))
    else:
        np.savez(content, **kernels)
    write_whole(path, content.getvalue())


# ---- showing


def facts_of(name: str, s: Spectrum, expected: Estimate | None) -> dict[str, Any]:
    names = ("lambda_max", "lambda_min", "condition")
    row: dict[str, Any] = {"kernel": name, "status": s.status}
    for number in names:
        row |= {number: getattr(s, number), f"{number}_bounds": getattr(s, f"{number}_bounds")}
    for source in ("ours", "paper"):
        law = getattr(expected, source, None)
        row[f"gaussian_{source}"] = law and {number: getattr(law, number) for number in names}
    return {**row, "eigenvalues": s.eigenvalues}


def condition_text(s: Spectrum) -> str:
    """The condition number, or a lower bound where rounding hides it."""
    low, _ = s.condition_bounds
    if s.status == "resolved":
        return f"{s.condition:.4g}"
    return f">= {low:.2g}" if math.isfinite(low) else "-"


def tables(measured: list[Measured], rows: ChosenRows) -> Iterator[output.Part]:
    """The ends of the spectra, and quantiles of those that were computed completely."""
    import numpy as np

    ends, quantiles = [], []
    for name, s, expected in measured:
        least, doubt = "0?", "-"
        if s.status != "unresolved":
            least = f"{s.lambda_min:.4g}"
        if s.status == "resolved":
            low, high = s.condition_bounds  # half of the proved interval, relative to the condition number
            doubt = f"{(high - low) / (2 * s.condition):.0e}"
        row = {"kernel": name, "lambda_max": s.lambda_max, "lambda_min": least, "condition": condition_text(s)}
        ours, paper = (getattr(getattr(expected, law, None), "condition", None) for law in ("ours", "paper"))
        ends.append({**row, "±": doubt, "Gaussian": ours, "paper's": paper})
        if s.eigenvalues is not None:
            values = np.quantile(s.eigenvalues, list(QUANTILES.values())).tolist()
            quantiles.append({"eigenvalues": name, **dict(zip(QUANTILES, values, strict=True))})
    yield output.table(ends)
    if quantiles:
        yield from ("", output.table(quantiles))
    yield from ("", "±: proved relative error of the condition number")
    if any(expected for *_, expected in measured):
        size = f"{rows.n} Gaussian rows of {rows.d} inputs"
        yield f"Gaussian: the expected condition number of {size}; paper's: by the formula of the paper"


def notes_of(measured: list[Measured], rows: ChosenRows) -> list[str]:
    """Notes of the spectra, and the reason where a condition number is not resolved."""
    notes = [f"{name}: {note}" for name, s, _ in measured for note in s.notes]
    if all(s.status == "resolved" for _, s, _ in measured):
        return notes
    same = "rows that are equal or proportional to others have dependent gradients, since there are no biases"
    many = f"{rows.n} rows of {rows.d} inputs may be more than the kernel can distinguish in double precision"
    return [*notes, f"{same}; {many}: give fewer with --rows"]


def draw_densities(measured: list[Measured], rows: ChosenRows, path: Path) -> None:
    from gatelab.plotting import save
    from gatelab.plotting.kernels import PlotLine, density_figure

    log = all(s.status == "resolved" for _, s, _ in measured) and max(s.condition for _, s, _ in measured) > 30
    curves = []
    for name, s, expected in measured:
        x, density = s.density(log=log)
        ends = (s.lambda_min, s.lambda_max)
        curves.append(PlotLine(name, x, density, (0 * density, density), ends, f"condition {condition_text(s)}"))
        if expected is not None and rows.gaussian:
            positive = x[x > 0]
            law = expected.density(positive)
            if log:
                law = law * (positive * math.log(10))
            curves.append(PlotLine(name, positive, law, note="our law of the bulk", predicted=True))
    save(density_figure(curves, f"{rows.name}: {rows.n} rows, {rows.d} inputs", log=log), path)
