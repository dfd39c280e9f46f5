"""`gatelab linearize`: polynomials and maps for an activation, their error, and a file for encrypted inference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gatelab.cli import output, reading
from gatelab.cli.options import Plot, complete_unit, out_option
from gatelab.cli.output import check_file
from gatelab.errors import GatelabError, unknown_name
from gatelab.files import PICTURES, either

if TYPE_CHECKING:
    from gatelab.linearization import Encrypted, Error, Export, Linearization

LINEARIZE = """Examples: gatelab linearize gelu --method hermite --degree 8 --scale 1.5

gatelab linearize gelu --method minimax --degree 10 --interval -5,5 --compare

gatelab linearize silu --method minimax --data z.npy --margin 0.2 --out silu.json

gatelab linearize silu --interval 8 --degree 14 --encrypted

gatelab linearize gelu --method optimal --d 16 --m 152

gatelab linearize gelu --method learned --d 2 --m 16 --option steps=30"""


# As `gatelab.linearization.methods` lists them; the help must not import torch.
METHODS = (
    "chebyshev",
    "fit",
    "hermite",
    "minimax",
    "taylor",
    "fourier",
    "learned",
    "maclaurin",
    "optimal",
    "tangent",
    "tensorsketch",
)


@dataclass(frozen=True)
class MapOptions:
    """The method that makes the maps, and for what: an interval, data, or Gaussian weights and inputs."""

    method: Annotated[
        str | None, typer.Option(help=f"{either(METHODS)}.", show_default="minimax with --interval, else hermite")
    ] = None
    degree: Annotated[int | None, typer.Option(min=0, help="Of the polynomial.", show_default="8")] = None
    interval: Annotated[str | None, typer.Option(metavar="A,B", help="Interval of w.x; R for -R,R.")] = None
    scale: Annotated[float | None, typer.Option(help="Deviation of w.x, for hermite.", show_default="1")] = None
    d: Annotated[int | None, typer.Option("--d", min=1, help="Number of inputs.")] = None
    m: Annotated[
        int | None, typer.Option("--m", min=1, help="Features, for maclaurin, tensorsketch, fourier, optimal, learned.")
    ] = None
    w_scale: Annotated[float, typer.Option(help="Deviation of the weights, with --d.")] = 1.0
    x_scale: Annotated[float, typer.Option(help="Deviation of the inputs, with --d.")] = 1.0
    seed: Annotated[int, typer.Option(min=0, help="The seed of random methods.")] = 0
    data: Annotated[Path | None, typer.Option(metavar="FILE", help="Pre-activations, .npy or CSV.")] = None
    margin: Annotated[float, typer.Option(min=0, help="Margin around the data, in half-widths.")] = 0.1

    option: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=NUMBER", help="An option of the method.", show_default=False),
    ] = None

    def build(self, activation: str, z: Any) -> Linearization:
        """The maps for an activation; `z` are the pre-activations of the data, if there are any."""
        from gatelab.linearization import linearize
        from gatelab.linearization.registry import find_method

        method = find_method(self.method or ("hermite" if self.interval is None else "minimax"))
        takes = method.options
        settings = read_options(method.name, self.option or [], takes) | self._interval(method, z)
        if self.scale is not None:
            settings["scale"] = self.scale
        elif z is not None and "data" in takes:
            settings["data"] = z
        if z is None and "data" in takes and takes["data"].default is takes["data"].empty:
            raise GatelabError(f"method {method.name} needs pre-activations; give them with --data FILE")
        settings |= self._sizes(takes)
        maps = linearize(activation, method.name, **{"degree": self.degree, "seed": self.seed, **settings, "d": self.d})
        if z is not None and maps.polynomial is not None:
            maps = replace(maps, polynomial=replace(maps.polynomial, margin=self.margin))
        return maps

    def _interval(self, method: Any, z: Any) -> dict[str, Any]:
        """The interval of the polynomial, for methods that take one."""
        from gatelab.linearization import calibrate
        from gatelab.linearization.polynomials import check_interval

        ends = reading.interval(self.interval)
        if ends is not None and z is not None:
            raise GatelabError(f"both --interval {self.interval} and --data are given; leave one of them out")
        if self.scale is not None and "scale" not in method.options:
            raise GatelabError(f"--scale is for method hermite, not for {method.name}; leave it out")
        if ends is not None and not method.polynomial:
            raise GatelabError(
                f"--interval is for polynomials; {method.name} makes its maps for --d inputs, leave it out"
            )
        if ends is not None:
            return {"interval": check_interval(ends)}
        if z is not None and "interval" in method.options:
            return {"interval": calibrate(z, self.margin)}
        return {}

    def _sizes(self, takes: Mapping[str, Any]) -> dict[str, Any]:
        """The number of features, the point of the tangent and the scales, for methods that take them."""
        import numpy as np

        sizes: dict[str, Any] = {}
        if self.m is not None:
            sizes["m"] = self.m
        if "reference" in takes and self.d is not None:
            sizes["reference"] = np.zeros(self.d)
        if {"w_scale", "x_scale"} <= set(takes):
            sizes |= {"w_scale": self.w_scale, "x_scale": self.x_scale}
        return sizes

    def error(self, maps: Linearization) -> Error | None:
        """The error on Gaussian weights and inputs; None where the number of inputs is not known."""
        if self.d is None:
            return None
        with output.progress("error on pairs") as report:
            scales = {"w_scale": self.w_scale, "x_scale": self.x_scale}
            return maps.error("gaussian", **scales, seed=self.seed, progress=report)


def linearize_command(
    *,
    word: Annotated[
        str | None,
        typer.Argument(
            metavar="ACTIVATION",
            help="relu, gelu, gelu-tanh, silu, ..., or a gated unit.",
            show_default="gelu",
            autocompletion=complete_unit,
        ),
    ] = None,
    unit: Annotated[str | None, typer.Option(help="The same.", show_default="gelu")] = None,
    options: MapOptions,
    compare: Annotated[bool, typer.Option("--compare", help="Compare with published approximations.")] = False,
    encrypted: Annotated[bool, typer.Option("--encrypted", help="Values and errors under CKKS.")] = False,
    plot: Plot = None,
    out: Annotated[Path | None, out_option("Write the polynomial, .json, .mlir, .c or .py.")] = None,
) -> None:
    """Approximate act(w.x) by a polynomial, or by a product of a map of w and a map of x."""
    check_file(plot, PICTURES)
    check_file(out, (".json", ".mlir", ".c", ".py"))
    if word is not None and unit is not None:
        raise GatelabError(f"both {word!r} and --unit {unit} are given; leave one of them out")
    z = read_numbers(options.data)
    with output.progress("maps"):
        maps = options.build(word or unit or "gelu", z)
    polynomial, rows = None, []
    if maps.polynomial is not None:
        from gatelab.linearization import export as export_of

        polynomial = export_of(maps.polynomial, maps.activation)
    elif out or plot or compare or encrypted or z is not None:
        raise GatelabError(
            f"{maps.method} is not a polynomial of w.x; --data, --out, --encrypted, --plot and --compare need one, "
            "such as minimax"
        )
    facts = _facts(maps, z)
    if (error := options.error(maps)) is not None:
        facts["error"] = {**asdict(error), "remark": error.remark}
    if encrypted:
        facts["encrypted"] = _encrypted(maps, z, options.seed).document()
    if compare:
        rows = _published(maps, z)
    if out and polynomial is not None:
        polynomial.save(out)
    if plot:
        _plot(maps, rows, plot)
    parts: list[output.Part] = [str(maps), ""]
    if polynomial is not None:
        parts += _polynomial_parts(polynomial, facts)
    if error is not None:
        parts += [
            "",
            f"w, x Gaussian, d = {error.d}: RMSE {error.rmse:.4g} [{error.low:.4g}, {error.high:.4g}], "
            f"maximum {error.maximum:.4g} of {error.pairs} pairs, m = {error.m}; "
            f"the floor for that m is {output.number(error.floor, '.4g')}",
            *([f"This RMSE is {error.remark}."] if error.remark else []),
        ]
    if rows:
        parts += ["", _published_table(rows)]
    document = {
        "linearization": str(maps),
        "polynomial": None if polynomial is None else polynomial.document(),
        "d": options.d,
        "m": None if options.d is None else maps.m,
        **facts,
        "published": rows,
    }
    output.emit(document, *parts, files=(out, plot))


# ---- measuring


def _facts(maps: Linearization, z: Any) -> dict[str, Any]:
    """The alternations of a minimax polynomial's error, and the error of any polynomial on the data."""
    import numpy as np

    from gatelab.linearization import equioscillation
    from gatelab.linearization.polynomials import values

    facts: dict[str, Any] = {}
    p = maps.polynomial
    if p is not None and maps.method == "minimax":
        turns = equioscillation(p, maps.activation)
        facts["equioscillation"] = None
        if turns.points:
            facts["equioscillation"] = {"points": len(turns.points), "spread": turns.spread}
    if p is not None and z is not None:
        errors = values(maps.activation, z).numpy() - p(z)
        rmse, largest = float(np.sqrt(np.mean(errors**2))), float(np.abs(errors).max())
        facts["data"] = {"numbers": len(z), "rmse": rmse, "maximum": largest}
    return facts


def _encrypted(maps: Linearization, z: Any, seed: int) -> Encrypted:
    """The polynomial under encryption at the data, or at 1000 numbers drawn from its interval."""
    import numpy as np

    if z is None and maps.polynomial is not None:
        z = np.random.default_rng(seed).uniform(*maps.polynomial.interval, 1000)
    with output.progress("encrypted"):
        return maps.encrypted(z)


def _published(maps: Linearization, z: Any) -> list[dict[str, Any]]:
    """The published approximations of GELU on the same interval, and on the data."""
    import numpy as np

    from gatelab.linearization import published
    from gatelab.linearization.polynomials import values

    if maps.activation.name not in ("gelu", "gelu-tanh"):
        raise GatelabError(
            f"the published approximations are of GELU, not of {maps.activation.name}; leave --compare out"
        )
    assert maps.polynomial is not None
    low, high = maps.polynomial.interval
    grid = np.linspace(low, high, 20_001)
    exact = values(maps.activation, grid).numpy()
    rows = []
    for p in published():
        row = {"name": p.name, "degree": p.degree, "comparisons": p.comparisons, "source": p.source}
        row["maximum"] = float(np.abs(p(grid) - exact).max())
        row["rmse_on_data"] = None
        if z is not None:
            row["rmse_on_data"] = float(np.sqrt(np.mean((p(z) - values(maps.activation, z).numpy()) ** 2)))
        rows.append(row)
    return rows


def read_numbers(path: Path | None) -> Any:
    """All numbers of a file, an array of any shape or every column of a table; None without a file."""
    if path is None:
        return None
    import numpy as np

    from gatelab.data.tables import open_columns
    from gatelab.linearization.polynomials import numbers

    reading.check_exists(path, "give pre-activations as .npy or CSV")
    if path.suffix.lower() == ".npy":
        try:
            return numbers(np.load(path, allow_pickle=False))
        except GatelabError as error:
            raise GatelabError(f"{path}: {error}") from None
        except (ValueError, EOFError, OSError) as error:
            raise GatelabError(f"{path} is not a plain .npy array ({error}); write it with numpy.save") from None
    columns = open_columns(path)
    return numbers(columns.take([i for i in range(columns.count) if i not in columns.labels]))


def read_options(method: str, texts: list[str], takes: Mapping[str, Any]) -> dict[str, Any]:
    """The values of --option NAME=NUMBER, for the options of a method.

    >>> read_options("fourier", ["terms=4", "base=0.5"], {"terms": None, "base": None})
    {'terms': 4, 'base': 0.5}
    """
    options: dict[str, Any] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if name not in takes:
            raise unknown_name(f"option of {method}", name, takes)
        try:
            number = float(value)
        except ValueError:
            raise GatelabError(
                f"--option {text} is not a number; give NAME=NUMBER, such as --option {name}=4"
            ) from None
        options[name] = number
        if number.is_integer() and "." not in value:
            options[name] = int(number)
    return options


# ---- showing


def _polynomial_parts(export: Export, facts: dict[str, Any]) -> list[output.Part]:
    p, cost = export.polynomial, export.cost
    rows = [
        ("interval", f"[{p.interval[0]:.6g}, {p.interval[1]:.6g}]"),
        ("largest error", f"{export.measured:.4g}"),
        ("proved at most", output.number(export.bound, ".4g")),
        ("outside", ", ".join(f"{e:.2g} at {k:g} half-widths" for k, e in export.outside)),
        (
            "encrypted",
            f"{cost.levels} levels, {cost.products} products of ciphertexts, for inputs scaled to [-1, 1]; one level "
            "more where they arrive unscaled",
        ),
    ]
    if turns := facts.get("equioscillation"):
        rows.append(("alternations", f"{turns['points']}, equal to {turns['spread']:.1g}"))
    if data := facts.get("data"):
        rows.append(
            ("on the data", f"RMSE {data['rmse']:.4g}, maximum {data['maximum']:.4g}, {data['numbers']} numbers")
        )
    if secret := facts.get("encrypted"):
        rows += _encrypted_rows(secret)
    cells = [
        (str(k), f"{a:.10g}", f"{c:.10g}")
        for k, (a, c) in enumerate(zip(p.coefficients, p.chebyshev, strict=True))
        if a or c
    ]
    return [output.pairs(rows), "", output.table(("k", "of z^k", "of T_k"), cells, right=(0, 1, 2))]


def _encrypted_rows(secret: dict[str, Any]) -> list[tuple[str, str]]:
    """The facts that `--encrypted` adds."""
    parameters, seconds = secret["parameters"], secret["seconds"]
    return [
        (
            "under CKKS",
            f"{secret['numbers']} numbers: approximation {output.number(secret['approximation'], '.4g')} (proved), "
            f"encryption {secret['encryption']:.2g} (measured), total {secret['total']:.4g}",
        ),
        (
            "used",
            f"{secret['levels']} levels, {secret['products']} products; {seconds['evaluation']:.2f} s and "
            f"{seconds['keys']:.2f} s for keys; {secret['bytes']['sent'] / 2**20:.1f} MiB sent",
        ),
        (
            "parameters",
            f"N = {parameters['poly_modulus_degree']}, primes of "
            f"{', '.join(map(str, parameters['coeff_mod_bit_sizes']))} bits, {parameters['security']} bits of security",
        ),
    ]


def _published_table(rows: list[dict[str, Any]]) -> output.Part:
    cells = [
        (
            r["name"],
            str(r["degree"]),
            str(r["comparisons"]),
            f"{r['maximum']:.3g}",
            output.number(r["rmse_on_data"], ".3g"),
        )
        for r in rows
    ]
    headings = ("published", "degree", "comparisons", "largest error", "RMSE on data")
    return output.table(headings, cells, right=(1, 2, 3, 4))


def _plot(maps: Linearization, rows: list[dict[str, Any]], path: Path) -> None:
    import numpy as np

    from gatelab.linearization import find_published
    from gatelab.linearization.polynomials import values
    from gatelab.plotting import save
    from gatelab.plotting.functions import approximation_figure

    p = maps.polynomial
    assert p is not None
    low, high = p.interval
    margin = 0.15 * (high - low)
    z = np.linspace(low - margin, high + margin, 1201)
    curves = [(f"{maps.method}, degree {p.degree}", p(z))]
    curves += [(row["name"], find_published(row["name"])(z)) for row in rows]
    exact = values(maps.activation, z).numpy()
    save(approximation_figure(z, exact, curves, p.interval, str(maps)), path)
