"""`gatelab linearize` and `gatelab plan`: polynomials and maps for an activation, and for a model under encryption."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from gatelab.cli import output, reading
from gatelab.cli.options import Plot, Tokenizer, argument, complete_unit, option, out_option
from gatelab.errors import GatelabError
from gatelab.files import either

if TYPE_CHECKING:
    from gatelab.linearization import Export, Linearization

LINEARIZE = """Examples: gatelab linearize gelu --method hermite --degree 8 --scale 1.5
gatelab linearize gelu --method minimax --degree 10 --interval -5,5 --compare
gatelab linearize silu --method minimax --data z.npy --margin 0.2 --out silu.json
gatelab linearize silu --interval 8 --degree 14 --encrypted
gatelab linearize gelu --method optimal --d 16 --m 152
gatelab linearize gelu --method learned --d 2 --m 16 --option steps=30"""
PLAN = """Examples: gatelab plan models/all-MiniLM-L6-v2 --text sentences.txt --out plan.json
gatelab plan models/stories260K --text stories.txt --quality 0.99"""
# As `gatelab.linearization.methods` lists them; the help must not import torch.
METHODS = ("chebyshev", "fit", "hermite", "minimax", "taylor")
METHODS += ("learned", "maclaurin", "optimal", "tangent", "tensorsketch")


@dataclass(frozen=True)
class MapOptions:
    """The method that makes the maps, and for what: an interval, data, or Gaussian weights and inputs."""

    method: Annotated[str | None, option(f"{either(METHODS)}.", default="minimax with --interval, else hermite")] = None
    degree: Annotated[int | None, option("Of the polynomial.", min=0, default="8")] = None
    interval: Annotated[str | None, option("Interval of w.x; R for -R,R.", metavar="A,B")] = None
    scale: Annotated[float | None, option("Deviation of w.x, for hermite.", default="1")] = None
    d: Annotated[int | None, option("Number of inputs.", "--d", min=1)] = None
    m: Annotated[int | None, option("Features, for maclaurin, tensorsketch, optimal, learned.", "--m", min=1)] = None
    w_scale: Annotated[float, option("Deviation of the weights, with --d.")] = 1.0
    x_scale: Annotated[float, option("Deviation of the inputs, with --d.")] = 1.0
    seed: Annotated[int, option("The seed of random methods.", min=0)] = 0
    data: Annotated[Path | None, option("Pre-activations, .npy or CSV.", metavar="FILE")] = None
    margin: Annotated[float, option("Margin around the data, in half-widths.", min=0)] = 0.1
    more: Annotated[list[str] | None, option("An option of the method.", "--option", metavar="NAME=NUMBER")] = None

    def build(self, activation: str, z: Any) -> Linearization:
        """The maps for an activation; `z` are the pre-activations of the data, if there are any."""
        import numpy as np

        from gatelab.linearization import calibrate, linearize
        from gatelab.linearization.registry import find_method

        ends = reading.interval(self.interval)
        if ends is not None and z is not None:
            raise GatelabError(f"both --interval {self.interval} and --data are given; leave one of them out")
        method = find_method(self.method or ("hermite" if ends is None else "minimax"))
        # Values from the data and the sizes, if the method takes them; `linearize` checks the given options.
        settings: dict[str, Any] = {"w_scale": self.w_scale, "x_scale": self.x_scale}
        if z is not None:
            settings["interval"] = calibrate(z, self.margin)
        if z is not None and self.scale is None:
            settings["data"] = z
        if self.d is not None:
            settings["reference"] = np.zeros(self.d)
        settings = {name: value for name, value in settings.items() if name in method.options}
        given = {"degree": self.degree, "interval": ends, "scale": self.scale, "m": self.m}
        settings |= {name: value for name, value in given.items() if value is not None}
        settings |= reading.settings("--option", self.more, "degree=4")
        return linearize(activation, method.name, d=self.d, **{"seed": self.seed, **settings})


def linearize_command(
    *,
    word: Annotated[str | None, argument("ACTIVATION", "relu, silu, ... or a unit.", complete_unit, "gelu")] = None,
    unit: Annotated[str | None, option("The same.", default="gelu")] = None,
    options: MapOptions,
    compare: Annotated[bool, option("Compare with published approximations.", "--compare")] = False,
    encrypted: Annotated[bool, option("Values and errors under CKKS.", "--encrypted")] = False,
    plot: Plot = None,
    out: Annotated[Path | None, out_option("Write the polynomial, .json.", ".json")] = None,
) -> None:
    """Approximate act(w.x) by a polynomial, or by a product of a map of w and a map of x."""
    if word is not None and unit is not None:
        raise GatelabError(f"both {word!r} and --unit {unit} are given; leave one of them out")
    z = read_numbers(options.data)
    with output.progress("maps"):
        maps = options.build(word or unit or "gelu", z)
    if maps.polynomial is None and (out or plot or compare or encrypted or z is not None):
        raise GatelabError(
            f"{maps.method} is not a polynomial of w.x; --data, --out, --encrypted, --plot and --compare need one, "
            "such as minimax"
        )
    facts: dict[str, Any] = {}
    parts: list[output.Part] = [str(maps), ""]
    polynomial, rows = None, []
    if maps.polynomial is not None:
        from gatelab.linearization import export

        polynomial = export(maps.polynomial, maps.activation)
        facts, lines = measurements(maps, z, encrypted, options.seed)
        parts += polynomial_parts(polynomial, lines)
    if options.d is not None:
        with output.progress("error on pairs") as report:
            scales = {"w_scale": options.w_scale, "x_scale": options.x_scale}
            error = maps.error("gaussian", **scales, seed=options.seed, progress=report)
        facts["error"] = {**asdict(error), "remark": error.remark}
        text = (
            "w, x Gaussian, d = {d}: RMSE {rmse:.4g} [{low:.4g}, {high:.4g}], maximum {maximum:.4g} of {pairs} pairs, "
            "m = {m}; the floor for that m is "
        )
        parts += ["", text.format(**facts["error"]) + output.cell(error.floor)]
        parts += [f"This RMSE is {error.remark}."] * bool(error.remark)
    if compare:
        rows = published_rows(maps, z)
        names = {"name": "published", "maximum": "largest error", "rmse_on_data": "RMSE on data"}
        table = [{names.get(key, key): value for key, value in row.items() if key != "source"} for row in rows]
        parts += ["", output.table(table, {"largest error": ".3g", "RMSE on data": ".3g"})]
    output.write(polynomial, out)
    if plot:
        draw_approximations(maps, rows, plot)
    document = {"linearization": str(maps), "polynomial": polynomial and polynomial.document(), "d": options.d}
    document |= {"m": options.d and maps.m, **facts, "published": rows}
    output.emit(document, *parts, files=(out, plot))


# ---- measuring


def measurements(maps: Linearization, z: Any, encrypted: bool, seed: int) -> tuple[dict[str, Any], dict[str, str]]:
    """A polynomial on the data and under encryption, there or at 1000 random numbers: as numbers and as lines."""
    import numpy as np

    from gatelab.linearization import equioscillation

    facts: dict[str, Any] = {}
    lines: dict[str, str] = {}
    assert maps.polynomial is not None
    if maps.method == "minimax":
        turns = equioscillation(maps.polynomial, maps.activation)
        facts["equioscillation"] = None
        if turns.points:
            facts["equioscillation"] = {"points": len(turns.points), "spread": turns.spread}
            lines["alternations"] = f"{len(turns.points)}, equal to {turns.spread:.1g}"
    if z is not None:
        facts["data"] = {"numbers": len(z), **errors_at(maps.polynomial, maps, z)}
        lines["on the data"] = "RMSE {rmse:.4g}, maximum {maximum:.4g}, {numbers} numbers".format(**facts["data"])
    if encrypted:
        if z is None:
            z = np.random.default_rng(seed).uniform(*maps.polynomial.interval, 1000)
        with output.progress("encrypted"):
            secret = facts["encrypted"] = maps.encrypted(z).document()
        parameters, seconds = secret["parameters"], secret["seconds"]
        lines["under CKKS"] = (
            f"{secret['numbers']} numbers: approximation {output.cell(secret['approximation'])} (proved), "
            f"encryption {secret['encryption']:.2g} (measured), total {secret['total']:.4g}"
        )
        lines["used"] = (
            f"{secret['levels']} levels, {secret['products']} products; {seconds['evaluation']:.2f} s and "
            f"{seconds['keys']:.2f} s for keys; {secret['bytes']['sent'] / 2**20:.1f} MiB sent"
        )
        lines["parameters"] = (
            f"N = {parameters['poly_modulus_degree']}, primes of "
            f"{', '.join(map(str, parameters['coeff_mod_bit_sizes']))} bits, {parameters['security']} bits of security"
        )
    return facts, lines


def errors_at(approximation: Any, maps: Linearization, z: Any) -> dict[str, float]:
    """The RMSE and the largest error of an approximation of the same activation at some numbers."""
    import numpy as np

    from gatelab.linearization.polynomials import values

    errors = approximation(z) - values(maps.activation, z).numpy()
    return {"rmse": float(np.sqrt(np.mean(errors**2))), "maximum": float(np.abs(errors).max())}


def published_rows(maps: Linearization, z: Any) -> list[dict[str, Any]]:
    """The published approximations of GELU on the same interval, and on the data."""
    import numpy as np

    from gatelab.linearization import PUBLISHED

    if maps.activation.name not in ("gelu", "gelu-tanh"):
        raise GatelabError(
            f"the published approximations are of GELU, not of {maps.activation.name}; leave --compare out"
        )
    assert maps.polynomial is not None
    grid, rows = np.linspace(*maps.polynomial.interval, 20_001), []
    for p in PUBLISHED.values():
        row = {name: getattr(p, name) for name in ("name", "degree", "comparisons", "source")}
        row |= {"maximum": errors_at(p, maps, grid)["maximum"], "rmse_on_data": None}
        if z is not None:
            row["rmse_on_data"] = errors_at(p, maps, z)["rmse"]
        rows.append(row)
    return rows


def read_numbers(path: Path | None) -> Any:
    """All numbers of a file, an array of any shape or every column of a table; None without a file."""
    if path is None:
        return None
    import numpy as np

    from gatelab.data.tables import open_columns
    from gatelab.linearization.polynomials import numbers

    if path.suffix.lower() != ".npy":
        columns = open_columns(path)
        return numbers(columns.take([i for i in range(columns.count) if i not in columns.labels]))
    try:
        return numbers(np.load(path, allow_pickle=False))
    except (ValueError, EOFError) as error:
        raise GatelabError(f"{path} is not an array of numbers ({error}); write one with numpy.save") from None


# ---- showing


def polynomial_parts(export: Export, lines: dict[str, str]) -> list[output.Part]:
    p, cost = export.polynomial, export.cost
    rows = {
        "interval": f"[{p.interval[0]:.6g}, {p.interval[1]:.6g}]",
        "largest error": export.measured,
        "proved at most": export.bound,
        "outside": ", ".join(f"{e:.2g} at {k:g} half-widths" for k, e in export.outside),
        "encrypted": f"{cost.levels} levels, {cost.products} products of ciphertexts, for inputs scaled to [-1, 1]; "
        "one level more where they arrive unscaled",
    }
    coefficients = enumerate(zip(p.coefficients, p.chebyshev, strict=True))
    cells = [{"k": k, "of z^k": a, "of T_k": c} for k, (a, c) in coefficients if a or c]
    return [output.pairs((rows | lines).items()), "", output.table(cells, {"of z^k": ".10g", "of T_k": ".10g"})]


def draw_approximations(maps: Linearization, rows: list[dict[str, Any]], path: Path) -> None:
    """The polynomial and the published approximations with their errors, and some of the line beyond the interval."""
    import numpy as np

    from gatelab.linearization import find_published
    from gatelab.linearization.polynomials import from_unit, values
    from gatelab.plotting import save
    from gatelab.plotting.functions import approximation_figure

    p = maps.polynomial
    assert p is not None
    z = from_unit(np.linspace(-1.3, 1.3, 1201), p.interval)
    curves = [(f"{maps.method}, degree {p.degree}", p(z))]
    curves += [(row["name"], find_published(row["name"])(z)) for row in rows]
    save(approximation_figure(z, values(maps.activation, z).numpy(), curves, p.interval, str(maps)), path)


def plan_command(
    path: Annotated[Path, argument("PATH", "The folder of a model, of Transformers or llama2.c.")],
    text: Annotated[Path, option("Text with one sentence per line.", metavar="FILE")],
    tokenizer: Tokenizer = None,
    quality: Annotated[float, option("Cosine, or ratio of perplexities, to keep.")] = 0.999,
    margin: Annotated[float, option("Margin around ranges, in half-widths.", min=0)] = 0.1,
    rows: Annotated[int, option("Maximal number of rows of the text.", min=8)] = 192,
    out: Annotated[Path | None, out_option("Write the plan, .json.", ".json")] = None,
) -> None:
    """Plan encrypted inference: a polynomial for every layer, with the fewest levels in total."""
    from gatelab.linearization import plan_encrypted
    from gatelab.models.pretrained import load_model, token_rows

    sentences = text.read_text(encoding="utf-8", errors="replace")
    model, own = load_model(path)
    tokens = token_rows(model, reading.read_tokenizer(tokenizer) or own, sentences)
    with output.progress("measurements") as report:
        plan = plan_encrypted(model, tokens[:rows], quality=quality, margin=margin, progress=report)
    output.write(plan, out)
    layers = []
    for i, (layer, share) in enumerate(zip(plan.layers, plan.outside, strict=True)):
        interval = "[{:.3g}, {:.3g}]".format(*layer.form.interval)
        row = {"layer": i, "interval": interval, "form": layer.form.method, "degree": layer.form.degree}
        layers.append({**row, "levels": layer.levels, "products": layer.products, "outside": share})
    output.emit(
        plan.document(),
        f"{path.name}: {plan.levels} levels in total, {plan.measure} kept {plan.quality:.6f}",
        "",
        output.table(layers, {"outside": ".2%"}),
        "",
        f"Demanded {plan.demanded:g}, reached {plan.chosen:.6f} on validation text; the quality above is on test text.",
        files=(out,),
    )
