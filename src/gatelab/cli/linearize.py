"""`gatelab linearize`: polynomials and maps for an activation, their error, and a file for encrypted inference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gatelab.cli import output
from gatelab.cli.lists import Json, complete_unit
from gatelab.cli.output import check_file
from gatelab.cli.reading import interval as read_interval
from gatelab.errors import GatelabError, unknown_name
from gatelab.files import PICTURES

if TYPE_CHECKING:
    from gatelab.linearization import Export, Linearization

LINEARIZE = """Examples: gatelab linearize gelu --degree 8 --scale 1.5

gatelab linearize gelu --method minimax --degree 10 --interval -5,5 --compare

gatelab linearize silu --data z.npy --margin 0.2 --export silu.json

gatelab linearize gelu --method optimal --d 16 --features 152

gatelab linearize gelu --method fourier --d 8 --features 64 --option terms=4"""


def linearize_command(
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
    method: Annotated[str, typer.Option(help="How; any other name lists them.")] = "minimax",
    degree: Annotated[int | None, typer.Option(min=0, help="Of the polynomial.", show_default="8")] = None,
    interval: Annotated[str | None, typer.Option(metavar="A,B", help="Where it must hold; R for -R,R.")] = None,
    scale: Annotated[float | None, typer.Option(help="Deviation of w.x, for hermite.", show_default="1")] = None,
    d: Annotated[int | None, typer.Option("--d", min=1, help="Inputs: the features and errors of w, x.")] = None,
    features: Annotated[int | None, typer.Option(min=1, help="m, for methods that choose it.")] = None,
    w_scale: Annotated[float, typer.Option(help="Deviation of the weights, with --d.")] = 1.0,
    x_scale: Annotated[float, typer.Option(help="Deviation of the inputs, with --d.")] = 1.0,
    seed: Annotated[int, typer.Option(min=0, help="The seed of what is drawn.")] = 0,
    option: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=NUMBER", help="An option of the method.", show_default=False),
    ] = None,
    data: Annotated[Path | None, typer.Option(metavar="FILE", help="Pre-activations, .npy or CSV.")] = None,
    margin: Annotated[float, typer.Option(min=0, help="Room around the data, in half-widths.")] = 0.1,
    compare: Annotated[bool, typer.Option("--compare", help="Published approximations beside it.")] = False,
    export: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the polynomial, .json.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Write the figure, .png, .svg or .pdf.")] = None,
    as_json: Json = False,
) -> None:
    """Write act(w.x) as a product of a map of w and a map of x."""
    check_file(plot, PICTURES)
    check_file(export, (".json",))
    if word is not None and unit is not None:
        raise GatelabError(f"both {word!r} and --unit {unit} are given; leave one of them out")
    activation = word or unit or "gelu"
    z = None if data is None else read_numbers(data)
    with output.progress("maps"):
        made = _made(
            activation, method, degree, interval, scale, z, margin, d, features, (w_scale, x_scale), seed, option
        )
    if made.polynomial is None and (export or plot or compare or z is not None):
        raise GatelabError(
            f"{made.method} is no polynomial of w.x; --data, --export, --plot and --compare need one, such as minimax"
        )
    facts = _facts(made, z, d, (w_scale, x_scale), seed)
    rows = _comparison(made, z) if compare else []
    found = facts.pop("_export", None)
    if export and found is not None:
        found.save(export)
    if plot:
        _plot(made, rows, plot)
    if as_json:
        document = found.document() if found is not None else None
        files = {"export": export, "figure": plot}
        output.document({"linearization": str(made), "polynomial": document, **facts, "published": rows, **files})
        return
    _print(made, found, facts, rows)
    for file in (export, plot):
        if file:
            output.say(f"wrote {file}", wrap=False)


def _made(
    activation: str,
    method: str,
    degree: int | None,
    interval: str | None,
    scale: float | None,
    z: Any,
    margin: float,
    d: int | None,
    features: int | None,
    scales: tuple[float, float],
    seed: int,
    more: list[str] | None,
) -> Linearization:
    import numpy as np

    from gatelab.linearization import calibrate
    from gatelab.linearization import linearize as build
    from gatelab.linearization.polynomials import check_interval
    from gatelab.linearization.registry import find_method

    way = find_method(method)
    name, takes = way.name, way.options
    options = read_options(name, more or [], takes)
    ends = read_interval(interval)
    if ends is not None and z is not None:
        raise GatelabError(f"both --interval {interval} and --data are given; the data say where, leave one out")
    if scale is not None and "scale" not in takes:
        raise GatelabError(f"--scale is for method hermite; {name} takes --interval")
    if ends is not None and not way.polynomial:
        raise GatelabError(f"--interval is for polynomials; {name} makes its maps for --d inputs, leave it out")
    if ends is not None:
        options["interval"] = check_interval(ends)
    if z is not None and "interval" in takes:
        options["interval"] = calibrate(z, margin)
    if scale is not None:
        options["scale"] = scale
    elif z is not None and "data" in takes:
        options["data"] = z
    if z is None and "data" in takes and takes["data"].default is takes["data"].empty:
        raise GatelabError(f"method {name} needs pre-activations; give them with --data FILE")
    if features is not None:
        options["m"] = features
    if "reference" in takes and d is not None:
        options["reference"] = np.zeros(d)
    if {"w_scale", "x_scale"} <= set(takes):
        options |= {"w_scale": scales[0], "x_scale": scales[1]}
    made = build(activation, name, **{"degree": degree, "seed": seed, **options, "d": d})
    if z is not None and made.polynomial is not None:
        made = replace(made, polynomial=replace(made.polynomial, margin=margin))
    return made


def _facts(made: Linearization, z: Any, d: int | None, scales: tuple[float, float], seed: int) -> dict[str, Any]:
    from dataclasses import asdict

    import numpy as np

    from gatelab.linearization import equioscillation
    from gatelab.linearization import export as describe
    from gatelab.linearization.polynomials import values

    facts: dict[str, Any] = {"d": d, "m": made.m if d is not None else None}
    p = made.polynomial
    if p is not None:
        facts["_export"] = describe(p, made.activation)
        if made.method == "minimax":
            turns = equioscillation(p, made.activation)
            facts["equioscillation"] = {"points": len(turns.points), "spread": turns.spread} if turns.points else None
        if z is not None:
            gap = values(made.activation, z).numpy() - p(z)
            facts["data"] = {
                "numbers": len(z),
                "rmse": float(np.sqrt(np.mean(gap**2))),
                "maximum": float(np.abs(gap).max()),
            }
    if d is not None:
        with output.progress("error on pairs") as report:
            error = made.error("gaussian", w_scale=scales[0], x_scale=scales[1], seed=seed, progress=report)
        facts["error"] = asdict(error)
    return facts


def _comparison(made: Linearization, z: Any) -> list[dict[str, Any]]:
    """The published approximations of GELU on the same interval, and on the data."""
    import numpy as np

    from gatelab.linearization import published
    from gatelab.linearization.polynomials import values

    if made.activation.name not in ("gelu", "gelu-tanh"):
        raise GatelabError(
            f"the published approximations are of GELU, not of {made.activation.name}; leave --compare out"
        )
    assert made.polynomial is not None
    low, high = made.polynomial.interval
    at = np.linspace(low, high, 20_001)
    exact = values(made.activation, at).numpy()
    rows = []
    for p in published():
        row = {"name": p.name, "degree": p.degree, "comparisons": p.comparisons, "source": p.source}
        row["maximum"] = float(np.abs(p(at) - exact).max())
        row["rmse_on_data"] = None
        if z is not None:
            row["rmse_on_data"] = float(np.sqrt(np.mean((p(z) - values(made.activation, z).numpy()) ** 2)))
        rows.append(row)
    return rows


def _print(made: Linearization, found: Export | None, facts: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    output.say(str(made), "")
    if found is not None:
        p = found.polynomial
        lines = [
            ("interval", f"[{p.interval[0]:.6g}, {p.interval[1]:.6g}]"),
            ("largest error", f"{found.measured:.4g}"),
            ("proved at most", "-" if found.bound is None else f"{found.bound:.4g}"),
            ("outside", ", ".join(f"{e:.2g} at {k:g} half-widths" for k, e in found.outside)),
            ("encrypted", _cost(found)),
        ]
        if turns := facts.get("equioscillation"):
            lines.append(("alternations", f"{turns['points']}, equal to {turns['spread']:.1g}"))
        if seen := facts.get("data"):
            lines.append(
                ("on the data", f"RMSE {seen['rmse']:.4g}, maximum {seen['maximum']:.4g}, {seen['numbers']} numbers")
            )
        output.pairs(lines)
        output.say("")
        cells = [
            (str(k), f"{a:.10g}", f"{c:.10g}")
            for k, (a, c) in enumerate(zip(p.coefficients, p.chebyshev, strict=True))
            if a or c
        ]
        output.table(("k", "of z^k", "of T_k"), cells, right=(0, 1, 2))
    if (error := facts.get("error")) is not None:
        least = output.number(error["floor"], ".4g")
        output.say(
            "",
            f"w, x Gaussian, d = {error['d']}: RMSE {error['rmse']:.4g} [{error['low']:.4g}, {error['high']:.4g}], "
            f"maximum {error['maximum']:.4g} of {error['pairs']} pairs, m = {error['m']}; "
            f"the floor for that m is {least}",
        )
    if rows:
        output.say("")
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
        output.table(("published", "degree", "comparisons", "largest error", "RMSE on data"), cells, right=(1, 2, 3, 4))


def _cost(found: Export) -> str:
    c = found.cost
    return f"depth {c.depth} ({c.levels} levels), {c.products} products of encrypted numbers"


def _plot(made: Linearization, rows: list[dict[str, Any]], path: Path) -> None:
    import numpy as np

    from gatelab.linearization import find_published
    from gatelab.linearization.polynomials import values
    from gatelab.plotting import save
    from gatelab.plotting.maps import approximation_figure

    p = made.polynomial
    assert p is not None
    low, high = p.interval
    room = 0.15 * (high - low)
    z = np.linspace(low - room, high + room, 1201)
    curves = [(f"{made.method}, degree {p.degree}", p(z))]
    curves += [(row["name"], find_published(row["name"])(z)) for row in rows]
    exact = values(made.activation, z).numpy()
    save(approximation_figure(z, exact, curves, p.interval, [], str(made)), path)


def read_numbers(path: Path) -> Any:
    """All numbers of a file: an array of any shape, or every column of a table."""
    import numpy as np

    from gatelab.data.tables import open_columns
    from gatelab.linearization.polynomials import numbers

    if not path.is_file():
        raise GatelabError(f"there is no file {path}; give pre-activations as .npy or CSV")
    if path.suffix.lower() == ".npy":
        try:
            return numbers(np.load(path, allow_pickle=False))
        except GatelabError as error:
            raise GatelabError(f"{path}: {error}") from None
        except (ValueError, EOFError, OSError) as error:
            raise GatelabError(f"{path} is not a plain .npy array ({error}); write it with numpy.save") from None
    source = open_columns(path)
    return numbers(source.take([i for i in range(source.count) if i not in source.labels]))


def read_options(method: str, texts: list[str], takes: Mapping[str, Any]) -> dict[str, Any]:
    """What --option name=number says, for the options that a method takes.

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
            raise GatelabError(f"--option {text} is no number; give NAME=NUMBER, such as --option {name}=4") from None
        options[name] = number
        if number.is_integer() and "." not in value:
            options[name] = int(number)
    return options
