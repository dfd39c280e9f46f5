"""Every way to replace a block of a transformer, made from calibration text, and what each does to other text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.polynomial import chebyshev
from torch import Tensor, nn

from gatelab.arrays import Array
from gatelab.data.text import TextData
from gatelab.linearization import Polynomial, Published, calibrate, find_published, linearize, verdict
from gatelab.linearization.polynomials import gate_and_factors, values
from gatelab.models.layouts import Block, blocks
from gatelab.models.replace import LinearMap, folded, replace_activation, replace_map, trace
from gatelab.statistics import Interval, bootstrap
from gatelab.studies.linearize.transformer_models import Embedder, Traced, trace_sentences

POLYNOMIALS = {
    "taylor": (10,),
    "minimax": (4, 8, 12, 24),
    "fit": (4, 8, 12, 24),
    "hermite": (4, 8, 12),
}
PUBLISHED = ("mpcformer", "bolt", "puma", "nexus")
MAPS = ("tangent", "folded hermite 1", "folded optimal", "linear fit", "linear + quadratic fit")
CELLS = 8192  # of the range of a layer's pre-activations
DIRECTIONS = 32  # of the inputs, whose products the quadratic map has
DRAWS = 1000  # of sentences, for intervals


# ---- ways to replace a block


@dataclass(frozen=True, eq=False)
class TracedLayer:
    """A block, what entered it in the calibration text, and its pre-activations there by narrow cells: mean and count.

    All of them are counted: the few that lie far out decide what a polynomial does, and no sample has enough of them.
    """

    block: Block
    X: Tensor
    z: Array = field(init=False)
    counts: Array = field(init=False)
    interval: tuple[float, float] = field(init=False)
    ends: tuple[float, float] = field(init=False)

    def __post_init__(self) -> None:
        z = self.block.before(self.X).flatten()
        numbers = z.double().numpy()
        counts, edges = np.histogram(numbers, CELLS)
        sums, _ = np.histogram(numbers, edges, weights=numbers)
        put = partial(object.__setattr__, self)
        put("z", sums[counts > 0] / counts[counts > 0])
        put("counts", counts[counts > 0].astype(float))
        put("interval", calibrate(z))
        put("ends", (float(z.min()), float(z.max())))

    def rms(self, values: Array) -> float:
        """The root mean square over pre-activations of a function that has these values in the cells."""
        return float(np.sqrt(self.counts @ values**2 / self.counts.sum()))

    def fitted(self, degree: int) -> Polynomial:
        """The best polynomial in mean square on all pre-activations: weighted least squares over the cells."""
        low, high = self.interval
        basis = chebyshev.chebvander((2 * self.z - low - high) / (high - low), degree)
        root = np.sqrt(self.counts)
        exact = values(gate_and_factors("gelu")[0], self.z).numpy()
        coefficients = np.linalg.lstsq(basis * root[:, None], exact * root, rcond=None)[0]
        return Polynomial.from_chebyshev(coefficients, self.interval, activation="gelu", method="fit")


@dataclass(frozen=True, eq=False)
class Substitute:
    """A function of z, or a module in place of the whole block; `interval` is where a polynomial was made for."""

    activation: Callable[[Tensor], Tensor] | None
    whole: nn.Module | None
    interval: tuple[float, float] | None = None
    features: int | None = None

    def output(self, block: Block, x: Tensor, z: Tensor) -> Tensor:
        """What the block gives for the input x, whose pre-activations are z."""
        if self.whole is not None:
            return self.whole(x)
        assert self.activation is not None
        return block.after(self.activation(z))


def ways(quick: bool) -> tuple[str, ...]:
    """The names of all ways, or of those that a quick run takes."""
    if quick:
        return ("taylor 10", "minimax 8", "fit 4", "hermite 4", "mpcformer", "puma", "tangent", "linear fit")
    return (*(f"{method} {n}" for method, degrees in POLYNOMIALS.items() for n in degrees), *PUBLISHED, *MAPS)


def make(way: str, layer: TracedLayer) -> Substitute:
    """One way at one layer, out of nothing but the calibration text."""
    if way in PUBLISHED:
        return Substitute(ModelPieces(find_published(way)), None)
    if way in MAPS:
        whole = whole_map(way, layer)
        return Substitute(None, whole, features=whole.A.shape[1])
    method, degree = way.split()
    if method == "fit":
        polynomial = layer.fitted(int(degree))
        return Substitute(polynomial, None, polynomial.interval)
    options: dict[str, Any] = {"minimax": {"interval": layer.interval}, "hermite": {"scale": layer.rms(layer.z)}}
    series = linearize("gelu", method, degree=int(degree), **options.get(method, {})).polynomial
    assert series is not None
    return Substitute(series, None, series.interval)


class ModelPieces:
    """A published approximation on tensors: Horner's rule on every piece, each used where it holds."""

    def __init__(self, published: Published) -> None:
        self.published = published

    def __call__(self, z: Tensor) -> Tensor:
        which = torch.bucketize(z, torch.tensor(self.published.breaks, dtype=z.dtype), right=True)
        out = torch.zeros_like(z)
        for i, piece in enumerate(self.published.pieces):
            value = torch.full_like(z, piece[-1])
            for c in piece[-2::-1]:
                value = value * z + c
            out = torch.where(which == i, value, out)
        return out


def whole_map(way: str, layer: TracedLayer) -> LinearMap:
    """A map in place of the whole block: its linearisation folded with its weights, or a fit to its outputs."""
    block, X = layer.block, layer.X
    d = X.shape[1]
    if way == "tangent":
        return folded(block, linearize("gelu", "tangent", d=d + 1, reference=X.mean(0)))
    if way == "folded hermite 1":
        return folded(block, linearize("gelu", "hermite", d=d + 1, degree=1, scale=layer.rms(layer.z)))
    if way == "folded optimal":
        rows = torch.cat([block.W1, block.b1[:, None]], 1)
        w = float(rows.square().mean().sqrt())
        x = float(((X.square().sum(1) + 1) / (d + 1)).mean().sqrt())
        return folded(block, linearize("gelu", "optimal", d=d + 1, m=d + 2, w_scale=w, x_scale=x))
    psi: Callable[[Tensor], Tensor] = linear_features
    if way != "linear fit":
        psi = quadratic_features(X)
    F, Y = psi(torch.cat([X, X.new_ones(len(X), 1)], 1)).double(), block(X).double()
    # A layer norm leaves inputs in a hyperplane: a little of the identity decides what data cannot.
    gram = F.T @ F
    gram += 1e-9 * gram.diagonal().mean() * torch.eye(len(gram), dtype=gram.dtype)
    A = torch.linalg.solve(gram, F.T @ Y).T
    return LinearMap(psi, A.to(X.dtype), torch.zeros_like(block.b2))


def linear_features(rows: Tensor) -> Tensor:
    """[x, 1] as it is."""
    return rows


def quadratic_features(X: Tensor) -> Callable[[Tensor], Tensor]:
    """A map from [x, 1] to itself and all products of two coordinates along the leading directions of the inputs."""
    mean = X.mean(0)
    V = torch.linalg.eigh(torch.cov(X.double().T)).eigenvectors[:, -min(DIRECTIONS, X.shape[1] // 3) :].to(X.dtype)
    i, j = torch.triu_indices(V.shape[1], V.shape[1])

    def psi(rows: Tensor) -> Tensor:
        t = (rows[..., :-1] - mean) @ V
        return torch.cat([rows, t[..., i] * t[..., j]], dim=-1)

    return psi


# ---- what a way does


@dataclass(frozen=True, eq=False)
class Plain:
    """The model as it is on the measured text, with what every way is held against.

    `before` are the pre-activations of each block.
    """

    embedder: Embedder
    sentences: tuple[str, ...]
    blocks: tuple[Block, ...]
    traced: Traced
    before: list[Tensor]


def plain(embedder: Embedder, sentences: tuple[str, ...]) -> Plain:
    """The model itself on these sentences."""
    traced, replaceable = trace_sentences(embedder, embedder.model, sentences), blocks(embedder.model)
    before = [block.before(x) for block, x in zip(replaceable, traced.inputs, strict=True)]
    return Plain(embedder, sentences, replaceable, traced, before)


@torch.no_grad()
def measure(way: str, layers: Sequence[TracedLayer], model: Plain) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """A row for each layer, and one for the embeddings, of the model with that way in every block."""
    substitutes = {i: make(way, layer) for i, layer in enumerate(layers)}
    changed = replaced(model.embedder.model, substitutes)
    before, after = model.traced, trace_sentences(model.embedder, changed, model.sentences)
    rows = []
    for i, substitute in substitutes.items():
        x, z, block = before.inputs[i], model.before[i], model.blocks[i]
        alone = model.embedder.finish(i, x, substitute.output(block, x, z))
        rows.append(
            {
                "way": way,
                "layer": i + 1,
                **named("alone", ratio(alone, before.outputs[i], before.of)),
                **named("accumulated", ratio(after.outputs[i], before.outputs[i], before.of)),
                "outside": outside(z, substitute.interval),
                "outside, accumulated": outside(block.before(after.inputs[i]), substitute.interval),
                "features": substitute.features,
            }
        )
    return rows, {"way": way, **cosines(before.embeddings, after.embeddings)}


def replaced(model: nn.Module, substitutes: Mapping[int, Substitute]) -> nn.Module:
    """The model with these blocks replaced, whole or in their activation."""
    wholes = {i: s.whole for i, s in substitutes.items() if s.whole is not None}
    if wholes:
        return replace_map(model, wholes)
    return replace_activation(model, {i: s.activation for i, s in substitutes.items()})


@torch.no_grad()
def measure_gpt(way: str, models: Sequence[Any], data: TextData, windows: int) -> list[dict[str, Any]]:
    """The same for trained GPTs, a row for each seed and layer, with what the test loss becomes."""
    context = models[0].config.context
    known, _ = data.batch(0, windows, context)
    x, y = next(data.batches("test", windows, context))
    of = torch.arange(x.numel()) // context
    rows = []
    for seed, model in enumerate(models):
        inputs = [a.flatten(0, 1) for a in trace(model, lambda m: m(known)).inputs]
        layers = [TracedLayer(block, a) for block, a in zip(blocks(model), inputs, strict=True)]
        substitutes = {i: make(way, layer) for i, layer in enumerate(layers)}
        changed: Any = replaced(model, substitutes)
        before, after = (trace(m, lambda m: m(x)) for m in (model, changed))
        losses = {"plain loss": float(model.loss(x, y)), "loss": float(changed.loss(x, y))}
        for i, block in enumerate(blocks(model)):
            a, out = before.inputs[i].flatten(0, 1), before.outputs[i].flatten(0, 1)
            # The residual stream: what the block gives is added to it.
            z = block.before(a)
            alone = out - block(a) + substitutes[i].output(block, a, z)
            rows.append(
                {
                    "way": way,
                    "seed": seed,
                    "layer": i + 1,
                    "alone": ratio(alone, out, of).value,
                    "accumulated": ratio(after.outputs[i].flatten(0, 1), out, of).value,
                    "outside": outside(z, substitutes[i].interval),
                    **losses,
                }
            )
    return rows


def outside(z: Tensor, interval: tuple[float, float] | None) -> float | None:
    """The share of pre-activations beyond the interval."""
    if interval is None:
        return None
    return float(((z < interval[0]) | (z > interval[1])).double().mean())


def ratio(outputs: Tensor, exact: Tensor, of: Tensor) -> Interval:
    """The root of sum |outputs - exact|^2 / sum |exact|^2, and its interval over sentences."""
    error, size = (
        torch.zeros(int(of.max()) + 1, dtype=torch.float64).index_add(0, of, part.double().square().sum(1)).numpy()
        for part in (outputs - exact, exact)
    )
    square = bootstrap([error, size], lambda e, s: e.sum(-1) / s.sum(-1), paired=True, draws=DRAWS)
    return Interval(*(float(np.sqrt(number)) for number in (square.value, square.low, square.high)))


def named(name: str, interval: Interval) -> dict[str, float]:
    """An interval in a row of a table: under its name, and its ends as `name low` and `name high`."""
    return {name: interval.value, f"{name} low": interval.low, f"{name} high": interval.high}


def cosines(exact: Tensor, changed: Tensor) -> dict[str, float]:
    """Of embeddings before and after: mean with its interval, least, and how many keep their nearest neighbour.

    An embedding that is no longer finite has the cosine 0.
    """
    changed = torch.nan_to_num(changed, 0.0, 0.0, 0.0)
    products = (exact * changed).sum(1).numpy()
    nearest = [(e @ e.T - 2 * torch.eye(len(e), dtype=e.dtype)).argmax(1) for e in (exact, changed)]
    return {
        **named("cosine", bootstrap([products], lambda p: p.mean(-1), draws=DRAWS)),
        "least": float(products.min()),
        "neighbour kept": float((nearest[0] == nearest[1]).double().mean()),
    }


def judge(number: int, layer: TracedLayer, most: int) -> dict[str, Any]:
    """Range of the pre-activations, and what `verdict` says of act(W1 x + b1): errors relative to its own size."""
    block = layer.block
    size = layer.rms(values(gate_and_factors("gelu")[0], layer.z).numpy())
    by_size = np.argsort(np.abs(layer.z))
    share = np.cumsum(layer.counts[by_size]) / layer.counts.sum()
    judged = verdict("gelu", block.W1, layer.X, 0.01 * size, bias=block.b1, most=most)
    d = judged.d
    return {
        "layer": number + 1,
        "width": judged.width,
        "lowest z": layer.ends[0],
        "highest z": layer.ends[1],
        "root mean square of z": layer.rms(layer.z),
        "99.9% of |z| below": float(np.abs(layer.z)[by_size][np.searchsorted(share, 0.999)]),
        "rank of inputs": judged.rank_x,
        "answer at 1%": judged.answer,
        "m needed for 1%": judged.needed,
        "m enough for 1%": judged.enough,
        "m needed for 10%": first_below(judged.curve, 0.1 * size),
        "m enough for 10%": first_below(judged.held_out, 0.1 * size),
        "floor at m = d + 1": judged.floor(d + 1) / size,
        "isotropic floor at m = d + 1": float(judged.isotropic[judged.isotropic_m.index(d + 1)]) / size,
        "m of degree 2": judged.isotropic_m[-1] + 1,
        "isotropic floor at degree 2": float(judged.isotropic[-1]) / size,
    }


def first_below(curve: Array, level: float) -> int | None:
    """The first place where the curve is at the level or below it, None if it never is.

    >>> first_below(np.array([3.0, 2.0, 1.0]), 2.0), first_below(np.array([3.0]), 2.0)
    (1, None)
    """
    below = np.nonzero(curve <= level)[0]
    if not len(below):
        return None
    return int(below[0])
