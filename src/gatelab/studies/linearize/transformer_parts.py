"""Parts of the study of transformers: text, models of sentences, a small GPT, and every way to replace a block."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.polynomial import Chebyshev
from torch import Tensor, nn
from torch.nn import functional

from gatelab.arrays import Array
from gatelab.data.text import TextData, text_data
from gatelab.errors import GatelabError
from gatelab.feedforward import Unit
from gatelab.linearization import Polynomial, calibrate, find_published, linearize, verdict
from gatelab.linearization.forms import PreActivations
from gatelab.models.layouts import Block, blocks
from gatelab.models.pretrained import import_transformers, load_model
from gatelab.models.replace import LinearMap, folded, replace_activation, replace_map, trace
from gatelab.statistics import LEVEL, Interval, bootstrap, t_interval
from gatelab.studies.engine import interval_columns
from gatelab.studies.linearize.taylor import gelu
from gatelab.train import History, recipe, train_many

MINILM, SMALL_BERT = "all-MiniLM-L6-v2", "a BERT of 3 layers and random weights"
Size = Mapping[str, int]  # of the small GPT and its training
FULL: Size = {"steps": 250, "batch": 8, "context": 32, "d_model": 64, "width": 192, "seeds": 3, "test": 64}
QUICK: Size = {"steps": 24, "batch": 8, "context": 16, "d_model": 16, "width": 32, "seeds": 2, "test": 16}
POLYNOMIALS = {"taylor": (10,), "minimax": (4, 8, 12, 24), "fit": (4, 8, 12, 24), "hermite": (4, 8, 12)}
PUBLISHED = ("mpcformer", "bolt", "puma", "nexus")
MAPS = ("tangent", "folded hermite 1", "folded optimal", "linear fit", "linear + quadratic fit")
# Every way by its name, and its family.
FAMILIES = {f"{method} {degree}": method for method, degrees in POLYNOMIALS.items() for degree in degrees}
FAMILIES |= dict.fromkeys(PUBLISHED, "published") | dict.fromkeys(MAPS, "whole maps")
WAYS = tuple(FAMILIES)
BATCH = 32  # sentences
WORDS = [a + b for a in ("ri", "gar", "win", "pa", "let") for b in ("ver", "den", "dow", "per", "ters", "ning")]
DIRECTIONS = 32  # of the inputs, whose products the quadratic map has
Function = Callable[[Any], Any]  # of pre-activations, or a `LinearMap` of the inputs of a block


# ---- text


class Texts(NamedTuple):
    """Sentences to calibrate on, others to measure on, and bytes for a model that is trained."""

    calibration: list[str]
    measured: list[str]
    letters: TextData
    about: str


def texts(calibration: int, measured: int) -> Texts:
    """FineWeb-Edu's sentences, and Shakespeare to train on."""
    whole, letters = text_data("fineweb-edu", "bytes"), text_data("tinyshakespeare", "bytes")
    chosen = sentences_of(whole.train, calibration), sentences_of(whole.test, measured)
    return Texts(*chosen, letters, "FineWeb-Edu's sample for sentences, Shakespeare for training")


def quick_texts(calibration: int, measured: int) -> Texts:
    """Made-up sentences, for quick runs."""
    train, test = made_up(4000, 0), made_up(400, 1)
    letters = [np.frombuffer(" ".join(part).encode(), np.uint8).astype(np.uint16) for part in (train, test)]
    data = TextData("made up", letters[0], letters[1], 256)
    chosen = sorted(train[:calibration], key=len), sorted(test[:measured], key=len)
    return Texts(*chosen, data, "sentences made up of 30 words, in a quick run")


def made_up(count: int, seed: int) -> list[str]:
    """Sentences of random words, 40 to 110 characters."""
    draw = np.random.default_rng(seed)
    return [" ".join(draw.choice(WORDS, draw.integers(9, 14))).capitalize() + "." for _ in range(count)]


def sentences_of(tokens: Any, count: int) -> list[str]:
    """Sentences of one line and 40 to 300 characters, spread evenly over the text and sorted by length."""
    text = bytes(np.asarray(tokens, np.uint8)).decode(errors="ignore")
    fitting = [s for s in re.split(r"(?<=[.!?])\s+", text) if 40 <= len(s) <= 300 and "\n" not in s]
    if len(fitting) < count:
        raise GatelabError(f"the text has {len(fitting)} sentences of 40 to 300 characters, {count} are needed")
    return sorted((fitting[i] for i in np.linspace(0, len(fitting) - 1, count).round().astype(int)), key=len)


# ---- models of sentences


class Traced(NamedTuple):
    """The inputs of each block and the outputs of each layer, for the tokens of all sentences in sequence."""

    inputs: list[Tensor]
    outputs: list[Tensor]
    of: Tensor  # the sentence of each token


class Embedder(NamedTuple):
    """A BERT, and a function from a sentence to its tokens."""

    name: str
    model: Any
    encode: Callable[[str], Tensor]

    def finish(self, layer: int, x: Tensor, y: Tensor) -> Tensor:
        """The output of a layer from its block's input and output: the norm of their sum."""
        return self.model.encoder.layer[layer].output.LayerNorm(x + y)

    def trace(self, sentences: Sequence[str], model: nn.Module) -> Traced:
        """The model, or a changed copy, on sentences."""
        inputs, outputs, of = [], [], []
        for first in range(0, len(sentences), BATCH):
            rows = [self.encode(sentence) for sentence in sentences[first : first + BATCH]]
            ids = nn.utils.rnn.pad_sequence(rows, batch_first=True)
            mask = torch.arange(ids.shape[1]) < torch.tensor([len(row) for row in rows])[:, None]
            flow = trace(model, lambda m, ids=ids, mask=mask: m(input_ids=ids, attention_mask=mask.long()))
            inputs.append([x[mask] for x in flow.inputs])
            outputs.append([x[mask] for x in flow.outputs])
            of.append(first + mask.nonzero()[:, 0])
        entered, left = ([torch.cat(parts) for parts in zip(*batches, strict=True)] for batches in (inputs, outputs))
        return Traced(entered, left, torch.cat(of))


def embeddings(traced: Traced) -> Tensor:
    """The mean over the tokens of each sentence, of length 1."""
    counts = torch.bincount(traced.of)
    total = torch.zeros(len(counts), traced.outputs[-1].shape[1]).index_add(0, traced.of, traced.outputs[-1])
    return functional.normalize((total / counts[:, None]).double(), dim=1)


def minilm() -> Embedder:
    model, tokenizer = load_model("minilm")
    return Embedder(MINILM, model, lambda sentence: torch.tensor(tokenizer(sentence)["input_ids"][:256]))


def with_fixed_seed(make: Callable[[], Any]) -> Any:
    """A model with random weights, the same at every call."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return make().eval()


def small_bert() -> Embedder:
    """A BERT of bytes with random weights, for quick runs."""
    transformers = import_transformers()
    config = transformers.BertConfig(
        vocab_size=256, hidden_size=24, num_hidden_layers=3, num_attention_heads=2, intermediate_size=96,
        max_position_embeddings=96, initializer_range=0.3,
    )  # fmt: skip
    model = with_fixed_seed(lambda: transformers.BertModel(config, add_pooling_layer=False))
    return Embedder(SMALL_BERT, model, lambda sentence: torch.tensor(list(sentence.encode())[:96]))


# ---- ways to replace a block


class TracedLayer(NamedTuple):
    """A block, its inputs in the calibration text, and all its pre-activations there, counted in narrow cells."""

    block: Block
    X: Tensor
    data: PreActivations

    def rms(self, values: Array) -> float:
        """The root mean square over pre-activations of a function that has these values in the cells."""
        return float(np.sqrt(self.data.counts @ values**2 / self.data.counts.sum()))

    def fitted(self, degree: int) -> Polynomial:
        """The best polynomial in mean square on all pre-activations: weighted least squares over the cells."""
        z, interval = self.data.z, self.data.interval
        series = Chebyshev.fit(z, gelu(z), degree, interval, w=np.sqrt(self.data.counts))
        return Polynomial.from_chebyshev(series.coef, interval, activation="gelu", method="fit")


def traced_layers(model: nn.Module, inputs: Sequence[Tensor]) -> list[TracedLayer]:
    pairs = zip(blocks(model), inputs, strict=True)
    return [TracedLayer(block, x, PreActivations.of(block.before(x))) for block, x in pairs]


def make(way: str, layer: TracedLayer) -> Function:
    """A function of z, or a map in place of the whole block, made from the calibration text alone."""
    if way in PUBLISHED:
        return find_published(way)
    if way in MAPS:
        return whole_map(way, layer)
    if way.startswith("fit "):
        return layer.fitted(int(way.split()[1]))
    return series(way, minimax={"interval": layer.data.interval}, hermite={"scale": layer.rms(layer.data.z)})


def trained_function(way: str, z: Tensor) -> Function:
    """The function that is trained instead of GELU; a polynomial is made for the pre-activations z."""
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
    # A layer norm leaves inputs in a hyperplane: a small multiple of the identity makes the solution unique.
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


def replace_blocks(model: nn.Module, functions: Mapping[int, Any]) -> nn.Module:
    """The model with these blocks replaced, whole or in their activation."""
    if isinstance(next(iter(functions.values())), LinearMap):
        return replace_map(model, functions)
    return replace_activation(model, functions)


def share_outside(function: Function, z: Tensor) -> float | None:
    """The share of pre-activations beyond the interval that a polynomial is made for."""
    if not isinstance(function, Polynomial):
        return None
    low, high = function.interval
    return float(((z < low) | (z > high)).double().mean())


# ---- the effect of a way


@torch.no_grad()
def measure(
    way: str, model: nn.Module, layers: Sequence[TracedLayer], before: Traced, traced: Callable[[nn.Module], Traced],
    finish: Callable[[int, Tensor, Tensor], Tensor],
) -> tuple[list[dict[str, Any]], Traced]:  # fmt: skip
    """A row per layer, and the trace of the model with all blocks replaced; `before` is that of the plain model.

    `finish` gives the output of a layer from its block's input and output.
    """
    functions = [make(way, layer) for layer in layers]
    after, rows = traced(replace_blocks(model, dict(enumerate(functions)))), []
    for i, (layer, function) in enumerate(zip(layers, functions, strict=True)):
        x = before.inputs[i]
        z, features = layer.block.before(x), None
        if isinstance(function, LinearMap):
            output, features = function(x), function.A.shape[1]
        else:
            output = layer.block.after(function(z))
        row = {"way": way, "layer": i + 1}
        row |= interval_columns("alone", ratio(finish(i, x, output), before.outputs[i], before.of))
        row |= interval_columns("accumulated", ratio(after.outputs[i], before.outputs[i], before.of))
        row["outside"] = share_outside(function, z)
        row["outside, accumulated"] = share_outside(function, layer.block.before(after.inputs[i]))
        rows.append(row | {"features": features})
    return rows, after


def ratio(outputs: Tensor, exact: Tensor, of: Tensor) -> Interval:
    """The root of sum |outputs - exact|^2 / sum |exact|^2, and its interval over sentences."""
    error, size = (
        torch.zeros(int(of.max()) + 1, dtype=torch.float64).index_add(0, of, part.double().square().sum(1)).numpy()
        for part in (outputs - exact, exact)
    )
    square = bootstrap([error, size], lambda e, s: e.sum(-1) / s.sum(-1), paired=True, draws=1000)
    return Interval(*(float(np.sqrt(number)) for number in (square.value, square.low, square.high)))


def cosines(exact: Tensor, changed: Tensor) -> dict[str, float]:
    """Cosines of embeddings before and after, and the share that keeps its nearest neighbor.

    An embedding that is no longer finite has the cosine 0.
    """
    changed = torch.nan_to_num(changed, 0.0, 0.0, 0.0)
    products = (exact * changed).sum(1).numpy()
    mean, least = bootstrap([products], lambda p: p.mean(-1), draws=1000), float(products.min())
    nearest = [(e @ e.T - 2 * torch.eye(len(e), dtype=e.dtype)).argmax(1) for e in (exact, changed)]
    away = {"lost": mean.value, "lost_low": mean.high, "lost_high": mean.low, "worst": least}  # for a logarithmic axis
    return {
        **interval_columns("cosine", mean),
        "least": least,
        "neighbour kept": float((nearest[0] == nearest[1]).double().mean()),
        **{name: max(1 - cosine, 1e-6) for name, cosine in away.items()},
    }


def judge(layer: TracedLayer, most: int) -> dict[str, Any]:
    """The range of the pre-activations, and the `verdict` on act(W1 x + b1), with errors relative to its size."""
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
    }


# ---- a small GPT


def train(size: Size, data: TextData, unit: Unit | str, folder: str | None = None) -> tuple[History, ...]:
    """GPTs with that unit, a history per seed; every unit starts from the same weights and takes the same batches."""
    options = {**{name: size[name] for name in ("context", "d_model", "width")}, "heads": 2}
    first = recipe(
        "gpt2", unit, "letters", size="tiny", options=options, steps=size["steps"], batch=size["batch"],
        lr=2e-3, evaluations=12, test_size=size["test"], tokenizer="bytes", precision="float32",
    )  # fmt: skip
    recipes = [first.with_seed(seed) for seed in range(size["seeds"])]
    return train_many(recipes, data=data, folder=folder, device="cpu")


def training_rows(runs: Mapping[str, Sequence[History]]) -> list[dict[str, Any]]:
    """Test loss at the end, its difference to GELU of the same seed (Bonferroni's intervals), and the steps needed.

    `steps` are those to the loss that GELU of the same seed has half-way, over that half.
    """
    level = 1 - (1 - LEVEL) / (len(runs) - 1)
    plain, rows = runs["gelu"], []
    half = float(plain[0].steps[-1]) / 2
    for name, histories in runs.items():
        ends = np.array([h.test[-1] if h.diverged is None else np.nan for h in histories])
        away = t_interval(ends - [h.test[-1] for h in plain], level)
        reached = []
        for h, p in zip(histories, plain, strict=True):
            level_of_gelu = float(np.interp(half, p.steps, p.test))
            reached.append(np.interp(-level_of_gelu, -np.minimum.accumulate(h.test), h.steps, right=np.inf))
        counts = {"seeds": len(ends), "diverged": sum(h.diverged is not None for h in histories)}
        losses = {"test loss": float(ends.mean()), **interval_columns("less_gelu", away)}
        rows.append({"activation": name, **counts, **losses, "steps": float(np.mean(reached)) / half})
    return rows
