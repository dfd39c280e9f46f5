"""Every way to replace a block of a transformer, made from calibration text, and what each does to other text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.polynomial import chebyshev
from torch import Tensor, nn

from gatelab.arrays import Array
from gatelab.data.text import TextData
from gatelab.linearization import Polynomial, calibrate, find_published, linearize, verdict
from gatelab.linearization.forms import PreActivations
from gatelab.linearization.polynomials import gate_and_factors, to_unit, values
from gatelab.models.layouts import Block, blocks
from gatelab.models.replace import LinearMap, folded, replace_activation, replace_map, trace
from gatelab.statistics import Interval, bootstrap
from gatelab.studies.linearize.transformer_models import Embedder, Traced

POLYNOMIALS = {"taylor": (10,), "minimax": (4, 8, 12, 24), "fit": (4, 8, 12, 24), "hermite": (4, 8, 12)}
PUBLISHED = ("mpcformer", "bolt", "puma", "nexus")
MAPS = ("tangent", "folded hermite 1", "folded optimal", "linear fit", "linear + quadratic fit")
WAYS = (*(f"{method} {degree}" for method, degrees in POLYNOMIALS.items() for degree in degrees), *PUBLISHED, *MAPS)
DIRECTIONS = 32  # of the inputs, whose products the quadratic map has
Function = Callable[[Tensor], Tensor]


# ---- ways to replace a block


class TracedLayer(NamedTuple):
    """A block, what entered it in the calibration text, and all its pre-activations there, counted in narrow cells."""

    block: Block
    X: Tensor
    data: PreActivations

    def rms(self, values: Array) -> float:
        """The root mean square over pre-activations of a function that has these values in the cells."""
        return float(np.sqrt(self.data.counts @ values**2 / self.data.counts.sum()))

    def fitted(self, degree: int) -> Polynomial:
        """The best polynomial in mean square on all pre-activations: weighted least squares over the cells."""
        z, interval, root = self.data.z, self.data.interval, np.sqrt(self.data.counts)
        basis = chebyshev.chebvander(to_unit(z, interval), degree)
        coefficients = np.linalg.lstsq(basis * root[:, None], gelu(z) * root, rcond=None)[0]
        return Polynomial.from_chebyshev(coefficients, interval, activation="gelu", method="fit")


def traced_layers(model: nn.Module, inputs: Sequence[Tensor]) -> list[TracedLayer]:
    """The blocks of a model with what entered them."""
    pairs = zip(blocks(model), inputs, strict=True)
    return [TracedLayer(block, x, PreActivations.of(block.before(x))) for block, x in pairs]


def gelu(z: Array) -> Array:
    return values(gate_and_factors("gelu")[0], z).numpy()


class Substitute(NamedTuple):
    """A function of z, or a map in place of the whole block; `interval` is the range that a polynomial is made for."""

    function: Function | LinearMap
    interval: tuple[float, float] | None = None

    def output(self, block: Block, x: Tensor, z: Tensor) -> Tensor:
        """What the block gives for the input x, whose pre-activations are z."""
        if isinstance(self.function, LinearMap):
            return self.function(x)
        return block.after(self.function(z))

    def outside(self, z: Tensor) -> float | None:
        """The share of pre-activations beyond the interval."""
        if self.interval is None:
            return None
        return float(((z < self.interval[0]) | (z > self.interval[1])).double().mean())


def make(way: str, layer: TracedLayer) -> Substitute:
    """One way at one layer, out of nothing but the calibration text."""
    if way in PUBLISHED:
        return Substitute(find_published(way))
    if way in MAPS:
        return Substitute(whole_map(way, layer))
    if way.startswith("fit "):
        polynomial = layer.fitted(int(way.split()[1]))
    else:
        scale = {"scale": layer.rms(layer.data.z)}
        polynomial = series(way, minimax={"interval": layer.data.interval}, hermite=scale)
    return Substitute(polynomial, polynomial.interval)


def trained_function(way: str, z: Tensor) -> Function:
    """What is trained in GELU's place; a polynomial is made for the pre-activations z."""
    if way == "identity":
        return torch.clone
    if way in PUBLISHED:
        return find_published(way)
    return series(way, minimax={"interval": calibrate(z)}, hermite={"data": z})


def series(way: str, **options: dict[str, Any]) -> Polynomial:
    """A polynomial by its method and degree, with the options of the method."""
    method, degree = way.split()
    made = linearize("gelu", method, degree=int(degree), **options.get(method, {})).polynomial
    assert made is not None
    return made


def whole_map(way: str, layer: TracedLayer) -> LinearMap:
    """A map in place of the whole block: its linearization folded with its weights, or a fit to its outputs."""
    block, X = layer.block, layer.X
    d = X.shape[1]
    if way == "tangent":
        return folded(block, linearize("gelu", "tangent", d=d + 1, reference=X.mean(0)))
    if way == "folded hermite 1":
        return folded(block, linearize("gelu", "hermite", d=d + 1, degree=1, scale=layer.rms(layer.data.z)))
    if way == "folded optimal":
        rows = torch.cat([block.W1, block.b1[:, None]], 1)
        w = float(rows.square().mean().sqrt())
        x = float(((X.square().sum(1) + 1) / (d + 1)).mean().sqrt())
        return folded(block, linearize("gelu", "optimal", d=d + 1, m=d + 2, w_scale=w, x_scale=x))
    psi = quadratic_features(X) if way == "linear + quadratic fit" else lambda rows: rows
    F, Y = psi(torch.cat([X, X.new_ones(len(X), 1)], 1)).double(), block(X).double()
    # A layer norm leaves inputs in a hyperplane: a little of the identity decides what data cannot.
    gram = F.T @ F
    gram += 1e-9 * gram.diagonal().mean() * torch.eye(len(gram), dtype=gram.dtype)
    A = torch.linalg.solve(gram, F.T @ Y).T
    return LinearMap(psi, A.to(X.dtype), torch.zeros_like(block.b2))


def quadratic_features(X: Tensor) -> Function:
    """A map from [x, 1] to itself and all products of two coordinates along the leading directions of the inputs."""
    mean = X.mean(0)
    V = torch.linalg.eigh(torch.cov(X.double().T)).eigenvectors[:, -min(DIRECTIONS, X.shape[1] // 3) :].to(X.dtype)
    i, j = torch.triu_indices(V.shape[1], V.shape[1])

    def psi(rows: Tensor) -> Tensor:
        t = (rows[..., :-1] - mean) @ V
        return torch.cat([rows, t[..., i] * t[..., j]], dim=-1)

    return psi


def replaced(model: nn.Module, substitutes: Mapping[int, Substitute]) -> nn.Module:
    """The model with these blocks replaced, whole or in their activation."""
    functions: dict[int, Any] = {i: s.function for i, s in substitutes.items()}
    if isinstance(next(iter(functions.values())), LinearMap):
        return replace_map(model, functions)
    return replace_activation(model, functions)


# ---- what a way does


@torch.no_grad()
def measure(
    way: str, layers: Sequence[TracedLayer], embedder: Embedder, sentences: Sequence[str], before: Traced
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """A row for each layer, and one for the embeddings, of the model with that way in every block.

    `before` is the trace of the plain model on the same sentences.
    """
    substitutes = {i: make(way, layer) for i, layer in enumerate(layers)}
    after = embedder.trace(replaced(embedder.model, substitutes), sentences)
    rows = []
    for i, substitute in substitutes.items():
        block, x, function = layers[i].block, before.inputs[i], substitute.function
        z = block.before(x)
        alone = embedder.finish(i, x, substitute.output(block, x, z))
        rows.append(
            {
                "way": way,
                "layer": i + 1,
                **named("alone", ratio(alone, before.outputs[i], before.of)),
                **named("accumulated", ratio(after.outputs[i], before.outputs[i], before.of)),
                "outside": substitute.outside(z),
                "outside, accumulated": substitute.outside(block.before(after.inputs[i])),
                "features": function.A.shape[1] if isinstance(function, LinearMap) else None,
            }
        )
    return rows, {"way": way, **cosines(before.embeddings, after.embeddings)}


@torch.no_grad()
def measure_gpt(way: str, models: Sequence[Any], data: TextData, windows: int) -> list[dict[str, Any]]:
    """The same for trained GPTs, a row for each seed and layer, with what the test loss becomes."""
    context = models[0].config.context
    known, _ = data.batch(0, windows, context)
    x, y = next(data.batches("test", windows, context))
    of = torch.arange(x.numel()) // context
    rows = []
    for seed, model in enumerate(models):
        layers = traced_layers(model, [a.flatten(0, 1) for a in trace(model, lambda m: m(known)).inputs])
        substitutes = {i: make(way, layer) for i, layer in enumerate(layers)}
        changed: Any = replaced(model, substitutes)
        before, after = (trace(m, lambda m: m(x)) for m in (model, changed))
        losses = {"plain loss": float(model.loss(x, y)), "loss": float(changed.loss(x, y))}
        for i, block in enumerate(blocks(model)):
            a, out = before.inputs[i].flatten(0, 1), before.outputs[i].flatten(0, 1)
            z = block.before(a)
            # The residual stream: the output of the block is added to it.
            alone = out - block(a) + substitutes[i].output(block, a, z)
            errors = {
                "alone": ratio(alone, out, of).value,
                "accumulated": ratio(after.outputs[i].flatten(0, 1), out, of).value,
                "outside": substitutes[i].outside(z),
            }
            rows.append({"way": way, "seed": seed, "layer": i + 1, **errors, **losses})
    return rows


def ratio(outputs: Tensor, exact: Tensor, of: Tensor) -> Interval:
    """The root of sum |outputs - exact|^2 / sum |exact|^2, and its interval over sentences."""
    error, size = (
        torch.zeros(int(of.max()) + 1, dtype=torch.float64).index_add(0, of, part.double().square().sum(1)).numpy()
        for part in (outputs - exact, exact)
    )
    square = bootstrap([error, size], lambda e, s: e.sum(-1) / s.sum(-1), paired=True, draws=1000)
    return Interval(*(float(np.sqrt(number)) for number in (square.value, square.low, square.high)))


def named(name: str, interval: Interval) -> dict[str, float]:
    """An interval in a row of a table: under its name, and its ends as `name low` and `name high`."""
    return {name: interval.value, f"{name} low": interval.low, f"{name} high": interval.high}


def cosines(exact: Tensor, changed: Tensor) -> dict[str, float]:
    """Of embeddings before and after: mean with its interval, least, and the share that keeps its nearest neighbor.

    An embedding that is no longer finite has the cosine 0.
    """
    changed = torch.nan_to_num(changed, 0.0, 0.0, 0.0)
    products = (exact * changed).sum(1).numpy()
    nearest = [(e @ e.T - 2 * torch.eye(len(e), dtype=e.dtype)).argmax(1) for e in (exact, changed)]
    return {
        **named("cosine", bootstrap([products], lambda p: p.mean(-1), draws=1000)),
        "least": float(products.min()),
        "neighbour kept": float((nearest[0] == nearest[1]).double().mean()),
    }


def judge(layer: TracedLayer, most: int) -> dict[str, Any]:
    """Range of the pre-activations, and what `verdict` says of act(W1 x + b1): errors relative to its own size."""
    block, data = layer.block, layer.data
    z, size = block.before(layer.X), layer.rms(gelu(data.z))
    by_size = np.argsort(np.abs(data.z))
    share = np.cumsum(data.counts[by_size]) / data.counts.sum()
    judged = verdict("gelu", block.W1, layer.X, 0.01 * size, bias=block.b1, most=most)
    return {
        "width": judged.width,
        "lowest z": float(z.min()),
        "highest z": float(z.max()),
        "root mean square of z": layer.rms(data.z),
        "99.9% of |z| below": float(np.abs(data.z)[by_size][np.searchsorted(share, 0.999)]),
        "rank of inputs": judged.rank_x,
        "answer at 1%": judged.answer,
        "m needed for 1%": judged.needed,
        "m enough for 1%": judged.enough,
        "m needed for 10%": next(iter(np.flatnonzero(judged.curve <= 0.1 * size)), None),
        "m enough for 10%": next(iter(np.flatnonzero(judged.held_out <= 0.1 * size)), None),
        "floor at m = d + 1": judged.floor(judged.d + 1) / size,
        "isotropic floor at m = d + 1": float(judged.isotropic[judged.isotropic_m.index(judged.d + 1)]) / size,
        "m of degree 2": judged.isotropic_m[-1] + 1,
        "isotropic floor at degree 2": float(judged.isotropic[-1]) / size,
    }
