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
from gatelab.linearization.polynomials import meant, values
from gatelab.models.replace import Block, LinearMap, blocks, folded, replace_activation, replace_map, trace
from gatelab.studies.linearize.transformer_models import Embedder, Seen, see

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
DRAWS, LEVEL = 1000, 0.95


# ---- ways to replace a block


@dataclass(frozen=True, eq=False)
class Layer:
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
        every = self.block.before(self.X).flatten()
        numbers = every.double().numpy()
        counts, edges = np.histogram(numbers, CELLS)
        sums, _ = np.histogram(numbers, edges, weights=numbers)
        put = partial(object.__setattr__, self)
        put("z", sums[counts > 0] / counts[counts > 0])
        put("counts", counts[counts > 0].astype(float))
        put("interval", calibrate(every))
        put("ends", (float(every.min()), float(every.max())))

    def rms(self, values: Array) -> float:
        """The root mean square over pre-activations of a function that has these values in the cells."""
        return float(np.sqrt(self.counts @ values**2 / self.counts.sum()))

    def fitted(self, degree: int) -> Polynomial:
        """The best polynomial in mean square on all pre-activations: weighted least squares over the cells."""
        low, high = self.interval
        basis = chebyshev.chebvander((2 * self.z - low - high) / (high - low), degree)
        root = np.sqrt(self.counts)
        exact = values(meant("gelu")[0], self.z).numpy()
        made = np.linalg.lstsq(basis * root[:, None], exact * root, rcond=None)[0]
        return Polynomial.from_chebyshev(made, self.interval, activation="gelu", method="fit")


@dataclass(frozen=True, eq=False)
class Made:
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
    if quick:
        return ("taylor 10", "minimax 8", "fit 4", "hermite 4", "mpcformer", "puma", "tangent", "linear fit")
    return (*(f"{method} {n}" for method, degrees in POLYNOMIALS.items() for n in degrees), *PUBLISHED, *MAPS)


def make(way: str, layer: Layer) -> Made:
    """One way at one layer, out of nothing but the calibration text."""
    if way in PUBLISHED:
        return Made(ModelPieces(find_published(way)), None)
    if way in MAPS:
        made = _maps(way, layer)
        return Made(None, made, features=made.A.shape[1])
    method, degree = way.split()
    options: dict[str, Any] = {"minimax": {"interval": layer.interval}, "hermite": {"scale": layer.rms(layer.z)}}
    made = None if method == "fit" else linearize("gelu", method, degree=int(degree), **options.get(method, {}))
    polynomial = layer.fitted(int(degree)) if made is None else made.polynomial
    assert polynomial is not None
    return Made(polynomial, None, polynomial.interval)


class ModelPieces:
    """A published approximation on tensors: Horner's rule on every piece, each kept where it holds."""

    def __init__(self, made: Published) -> None:
        self.made = made

    def __call__(self, z: Tensor) -> Tensor:
        which = torch.bucketize(z, torch.tensor(self.made.breaks, dtype=z.dtype), right=True)
        out = torch.zeros_like(z)
        for i, piece in enumerate(self.made.pieces):
            value = torch.full_like(z, piece[-1])
            for c in piece[-2::-1]:
                value = value * z + c
            out = torch.where(which == i, value, out)
        return out


def _maps(way: str, layer: Layer) -> LinearMap:
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
    psi = _same if way == "linear fit" else _quadratic(X)
    F, Y = psi(torch.cat([X, X.new_ones(len(X), 1)], 1)).double(), block(X).double()
    # A layer norm leaves inputs in a hyperplane: a little of the identity decides what data cannot.
    gram = F.T @ F
    gram += 1e-9 * gram.diagonal().mean() * torch.eye(len(gram), dtype=gram.dtype)
    A = torch.linalg.solve(gram, F.T @ Y).T
    return LinearMap(psi, A.to(X.dtype), torch.zeros_like(block.b2))


def _same(rows: Tensor) -> Tensor:
    return rows


def _quadratic(X: Tensor) -> Callable[[Tensor], Tensor]:
    """[x, 1] and all products of two coordinates along the leading directions of the inputs."""
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
    """The model as it is on the measured text, with what every way is held against."""

    embedder: Embedder
    sentences: tuple[str, ...]
    blocks: tuple[Block, ...]
    seen: Seen
    before: list[Tensor]


def plain(embedder: Embedder, sentences: tuple[str, ...]) -> Plain:
    found, every = see(embedder, embedder.model, sentences), blocks(embedder.model)
    return Plain(embedder, sentences, every, found, [b.before(x) for b, x in zip(every, found.inputs, strict=True)])


@torch.no_grad()
def measure(way: str, layers: Sequence[Layer], at: Plain) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """A row for each layer, and one for the embeddings, of the model with that way in every block."""
    made = {i: make(way, layer) for i, layer in enumerate(layers)}
    changed = replaced(at.embedder.model, made)
    after = see(at.embedder, changed, at.sentences)
    rows = []
    for i, one in made.items():
        x, z, block = at.seen.inputs[i], at.before[i], at.blocks[i]
        y = one.output(block, x, z)
        errors = {
            "alone": ratio(at.embedder.finish(i, x, y), at.seen.outputs[i], at.seen.of),
            "accumulated": ratio(after.outputs[i], at.seen.outputs[i], at.seen.of),
        }
        named = {
            f"{k}{end}": v for k, found in errors.items() for end, v in zip(("", " low", " high"), found, strict=True)
        }
        rows.append(
            {
                "way": way,
                "layer": i + 1,
                **named,
                "outside": outside(z, one.interval),
                "outside, accumulated": outside(block.before(after.inputs[i]), one.interval),
                "features": one.features,
            }
        )
    return rows, {"way": way, **cosines(at.seen.embeddings, after.embeddings)}


def replaced(model: nn.Module, made: Mapping[int, Made]) -> nn.Module:
    wholes = {i: m.whole for i, m in made.items() if m.whole is not None}
    return (
        replace_map(model, wholes) if wholes else replace_activation(model, {i: m.activation for i, m in made.items()})
    )


@torch.no_grad()
def measure_gpt(way: str, models: Sequence[Any], data: TextData, windows: int) -> list[dict[str, Any]]:
    """The same for trained GPTs, a row for each seed and layer, with what the test loss becomes."""
    context = models[0].config.context
    known, _ = data.batch(0, windows, context)
    x, y = next(data.batches("test", windows, context))
    of = torch.arange(x.numel()) // context
    rows = []
    for seed, model in enumerate(models):
        seen = trace(model, lambda m: m(known)).inputs
        made = {
            i: make(way, Layer(b, a.flatten(0, 1))) for i, (b, a) in enumerate(zip(blocks(model), seen, strict=True))
        }
        changed: Any = replaced(model, made)
        plain, after = (trace(m, lambda m: m(x)) for m in (model, changed))
        losses = {"plain loss": float(model.loss(x, y)), "loss": float(changed.loss(x, y))}
        for i, block in enumerate(blocks(model)):
            a, out = plain.inputs[i].flatten(0, 1), plain.outputs[i].flatten(0, 1)
            # The residual stream: what the block gives is added to it.
            z = block.before(a)
            alone = out - block(a) + made[i].output(block, a, z)
            errors = [ratio(v, out, of)[0] for v in (alone, after.outputs[i].flatten(0, 1))]
            found = {"alone": errors[0], "accumulated": errors[1], "outside": outside(z, made[i].interval)}
            rows.append({"way": way, "seed": seed, "layer": i + 1, **found, **losses})
    return rows


def outside(z: Tensor, interval: tuple[float, float] | None) -> float | None:
    """The share of pre-activations beyond the interval."""
    return None if interval is None else float(((z < interval[0]) | (z > interval[1])).double().mean())


def ratio(made: Tensor, exact: Tensor, of: Tensor) -> tuple[float, float, float]:
    """The root of sum |made - exact|^2 / sum |exact|^2, and its interval over sentences."""
    count = int(of.max()) + 1
    error, size = (
        torch.zeros(count, dtype=torch.float64).index_add(0, of, part.double().square().sum(1)).numpy()
        for part in (made - exact, exact)
    )
    drawn = np.random.default_rng(0).integers(0, count, (DRAWS, count))
    low, high = np.quantile(error[drawn].sum(1) / size[drawn].sum(1), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(np.sqrt(error.sum() / size.sum())), float(np.sqrt(low)), float(np.sqrt(high))


def cosines(exact: Tensor, made: Tensor) -> dict[str, float]:
    """Of embeddings before and after: mean with its interval, least, and how many keep their nearest neighbour.

    An embedding that is no longer finite has the cosine 0.
    """
    made = torch.nan_to_num(made, 0.0, 0.0, 0.0)
    each = (exact * made).sum(1).numpy()
    drawn = np.random.default_rng(0).integers(0, len(each), (DRAWS, len(each)))
    low, high = np.quantile(each[drawn].mean(1), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    nearest = [(e @ e.T - 2 * torch.eye(len(e), dtype=e.dtype)).argmax(1) for e in (exact, made)]
    kept = float((nearest[0] == nearest[1]).double().mean())
    mean, least = float(each.mean()), float(each.min())
    return {
        "cosine": mean,
        "cosine low": float(low),
        "cosine high": float(high),
        "least": least,
        "neighbour kept": kept,
    }


def judge(number: int, layer: Layer, most: int) -> dict[str, Any]:
    """Range of the pre-activations, and what `verdict` says of act(W1 x + b1): errors relative to its own size."""
    block = layer.block
    size = layer.rms(values(meant("gelu")[0], layer.z).numpy())
    far = np.argsort(np.abs(layer.z))
    share = np.cumsum(layer.counts[far]) / layer.counts.sum()
    found = verdict("gelu", block.W1, layer.X, 0.01 * size, bias=block.b1, most=most)
    d = found.d
    ten = [np.nonzero(curve <= 0.1 * size)[0] for curve in (found.curve, found.held_out)]
    return {
        "layer": number + 1,
        "width": found.width,
        "lowest z": layer.ends[0],
        "highest z": layer.ends[1],
        "root mean square of z": layer.rms(layer.z),
        "99.9% of |z| below": float(np.abs(layer.z)[far][np.searchsorted(share, 0.999)]),
        "rank of inputs": found.rank_x,
        "answer at 1%": found.answer,
        "m needed for 1%": found.needed,
        "m enough for 1%": found.enough,
        "m needed for 10%": int(ten[0][0]) if len(ten[0]) else None,
        "m enough for 10%": int(ten[1][0]) if len(ten[1]) else None,
        "floor at m = d + 1": found.floor(d + 1) / size,
        "isotropic floor at m = d + 1": float(found.isotropic[found.isotropic_m.index(d + 1)]) / size,
        "m of degree 2": found.isotropic_m[-1] + 1,
        "isotropic floor at degree 2": float(found.isotropic[-1]) / size,
    }
