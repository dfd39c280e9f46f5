"""`profile`: what every feed-forward block of a given model does, and how hard it is to replace.

    gl.profile(model, text, tokenizer=tokenizer)      .table() .sentences() .plot() .save("profile.json")

The text is cut into windows: some to fit on, some to choose by, the last ones to measure on. One pass over each part
collects counters, Gram matrices and as many rows as the memory allows; then every block is held against the best linear
map, a bilinear unit beside it and units of its own kind of growing width, all measured on rows that they have not seen;
at last the model itself is run on the test windows with one block at a time skipped or made linear.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from gatelab.anatomy.fits import Affine, BlockRows, best_affine, fit_block
from gatelab.anatomy.flows import Flow, Moments, Tap, first_argument, first_tensor, tapped, taps_of, without_head
from gatelab.anatomy.texts import (
    check_reads,
    check_tokens,
    evaluating,
    is_language_model,
    split,
    token_losses,
    window_length,
    windows,
)
from gatelab.data import Problem
from gatelab.display import ProgressLike, counted, one_line, reporting
from gatelab.errors import GatelabError, whole_number
from gatelab.feedforward import Unit, units
from gatelab.feedforward.gates import activation
from gatelab.files import write_whole
from gatelab.memory import check_memory
from gatelab.models.layouts import Block, layers_of
from gatelab.scaling_laws import Slope, slope
from gatelab.statistics import Interval, percentile_interval, resampled, t_interval

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

TOKENS, TEST, LENGTH = 6144, 512, 128
VALIDATION = 0.125  # of the windows that are not for the test
WIDTHS = (16, 32, 64, 128)
STEPS = 20
BILINEAR = 64
MEMORY = 2 * 2**30
DRAWS = 1000
MOSTLY, HALF = 0.8, 0.5  # shares of the variance from which a block is called mostly and half linear
SMALL = 0.01  # nats: a percent of perplexity
APART = 0.2  # shares left of the variance and at the median token that are further apart than this are told
FOOT = 1e-3  # where the figure draws losses that are as small, or negative


@dataclass(frozen=True)
class BlockProfile:
    """What one block does.

    Attributes:
        number: that of its layer in the model; None for a module that is no layer.
        name: of the layer, or of the module that was given.
        unit: the name of its unit, such as swiglu; empty where it is not known.
        width: its neurons, 0 where they are not known.
        d_in: its inputs.
        d_out: its outputs.
        statistics: what counters say: open gates, dead neurons, ranks, tails, alignment, share of the stream.
        linear: the share of the variance of its output that the best linear map leaves, on test windows.
        typical: the same for the median token.
        bilinear: the same where a bilinear unit is added to that map; nan where it was not fitted.
        curve: (width, parameters, share left) of units of its own kind, by width.
        slope: of the root of the share left against parameters; None with fewer than three widths.
        skipped: what the model loses without the block: nats a token, or for a model without logits the share of the
            variance of its output; None where it was not measured.
        linearised: what it loses with the linear map in the place of the block; likewise.
    """

    number: int | None
    name: str
    unit: str
    width: int
    d_in: int
    d_out: int
    statistics: dict[str, float]
    linear: Interval
    typical: float
    bilinear: float
    curve: tuple[tuple[int, int, float], ...]
    slope: Slope | None
    skipped: Interval | None
    linearised: Interval | None

    def __repr__(self) -> str:
        return one_line(self, f"{self.name}: {self.unit or 'a module'}, {percent(self.explained)} % linear")

    @property
    def explained(self) -> float:
        """The share of the variance of its output that the best linear map explains, 0 where the mean does better."""
        return max(0.0, 1 - self.linear.value)

    @property
    def label(self) -> str:
        """The number of its layer as text, or its name."""
        return self.name if self.number is None else str(self.number)

    @property
    def heading(self) -> str:
        """What a sentence about it begins with."""
        return self.name if self.number is None else f"Layer {self.number}"

    def as_row(self) -> dict[str, Any]:
        """A row of the table."""
        row: dict[str, Any] = {"layer": self.number, "name": self.name, "unit": self.unit, "width": self.width}
        row |= {"d_in": self.d_in, "d_out": self.d_out, **self.statistics}
        row |= {"left by linear": self.linear.value, "low": self.linear.low, "high": self.linear.high}
        row |= {"typical": self.typical, "left by bilinear": self.bilinear}
        row |= {f"left by width {width}": error for width, _, error in self.curve}
        for name, value in (("slope", self.slope), ("skipped", self.skipped), ("linearised", self.linearised)):
            if value is not None:
                row |= {name: value.value, f"{name} low": value.low, f"{name} high": value.high}
        return row


@dataclass(frozen=True, eq=False)
class Profile:
    """What the blocks of a model do.

    Attributes:
        model: the class of the model.
        blocks: a `BlockProfile` each.
        tokens: how many tokens, or patches of images, were fitted on, chosen by and measured on.
        loss: of the model on the test windows, nats a token; nan for a model without logits.
        seconds: how long it took.
    """

    model: str
    blocks: tuple[BlockProfile, ...]
    tokens: tuple[int, int, int]
    loss: float
    seconds: float

    def __repr__(self) -> str:
        shares = [block.explained for block in self.blocks]
        return one_line(self, f"{self.model}, {counted(len(self.blocks), 'block')}: {span(shares)} % linear")

    def table(self) -> pd.DataFrame:
        """A row a block."""
        import pandas as pd

        return pd.DataFrame([block.as_row() for block in self.blocks]).astype({"layer": "Int64"})

    def curves(self) -> pd.DataFrame:
        """The error of units of growing width: a row a block and width."""
        import pandas as pd

        rows = [
            (b.number, b.name, b.unit, width, parameters, error)
            for b in self.blocks
            for width, parameters, error in b.curve
        ]
        names = ["layer", "name", "unit", "width", "parameters", "left"]
        return pd.DataFrame(rows, columns=names).astype({"layer": "Int64"})

    def sentences(self) -> tuple[str, ...]:
        """What the table says, in words, by fixed rules."""
        return tuple(sentences_of(self))

    def plot(self, path: str | Path | None = None, *, ax: Any = None) -> Figure:
        """How nonlinear the blocks are, what they do to the model, and how single activations grow, by layer.

        Written to `path` (.png, .svg or .pdf) if given, and drawn into three axes of your own with `ax`.
        """
        from gatelab.plotting import saved

        return saved(figure_of(self, ax), path)

    def plain(self) -> dict[str, Any]:
        """All of it as plain values, for JSON."""
        return {**asdict(self), "sentences": list(self.sentences())}

    def save(self, path: str | Path) -> Path:
        """Write all of it as JSON."""
        return write_whole(Path(path), json.dumps(without_nan(self.plain()), indent=1).encode())

    def _repr_html_(self) -> str:
        from gatelab.plotting.theme import html

        rows = [(sentence,) for sentence in self.sentences()]
        return html(f"Blocks of {self.model}", rows, figure=self.plot())


def percent(share: float) -> str:
    """A share as a whole percent.

    >>> percent(0.804)
    '80'
    """
    return f"{100 * share:.0f}"


def without_nan(value: Any) -> Any:
    """Plain values in which what is no number is None, as JSON has it."""
    if isinstance(value, dict):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


# ---- the profile


def profile(
    model: nn.Module,
    text: Any,
    *,
    tokenizer: Any = None,
    modules: Sequence[str] | None = None,
    tokens: int = TOKENS,
    test: int = TEST,
    length: int | None = None,
    widths: Sequence[int] = WIDTHS,
    steps: int = STEPS,
    losses: bool = True,
    memory: float = MEMORY,
    progress: ProgressLike = None,
) -> Profile:
    """What every feed-forward block of a model does, and how hard it is to replace.

    Args:
        model: a model of Transformers in a known layout (Llama and its kin, GPT-2, BERT, ViT, GPT-NeoX), or gatelab's
            own; with `modules` any module. What it is on computes.
        text: a string, a file, the name of a text, token numbers, or images for models of images.
        tokenizer: of the model, where the text is a string or a file.
        modules: names of modules that stand for blocks; None for all blocks of the layout.
        tokens: how many to fit on and to choose by.
        test: how many to measure on, never the same ones.
        length: tokens a window; None for 128, or for what the model reads where that is less.
        widths: of the units that are fitted to every block; none for no curve and no bilinear unit.
        steps: of Adam for every such unit.
        losses: whether the model is run with blocks skipped and made linear.
        memory: bytes for Gram matrices and rows; of rows fewer are kept where they would need more.
        progress: shown on a terminal and in a notebook unless it is False, or a function of (done, total).

    Returns:
        A `Profile`.
    """
    began = time.perf_counter()
    widths = tuple(whole_number("widths", width, 1, of="neurons") for width in np.atleast_1d(widths))
    tokens, test = whole_number("tokens", tokens, 2), whole_number("test", test, 1)
    steps = whole_number("steps", steps, 0)
    taps = taps_of(model, modules)
    parts = parts_of(text, tokenizer, tokens, test, window_length(model, text, length, LENGTH))
    for rows in parts:
        check_tokens(model, rows)
    with ready(model), reporting(progress, "profiling") as report:
        check_reads(model, parts[0])
        work = ProfileWork(report, len(taps), [len(part) for part in parts], len(widths), losses)
        moments, kept, measured = collected(model, taps, parts, memory, work)
        blocks, maps = [], []
        for i, tap in enumerate(taps):
            affine = best_affine(
                (moments[i].centred("x", "x"), moments[i].centred("x", "y")),
                (moments[i].mean("x"), moments[i].mean("y")),
                kept[i].validation,
            )
            maps.append(affine)
            blocks.append(block_profile(tap, moments[i], kept[i], affine, widths, steps))
            work.fitted()
        costs: Sequence[tuple[Interval | None, Interval | None]] = [(None, None)] * len(taps)
        loss = math.nan
        if losses:
            costs, loss = measured_costs(model, taps, parts[2], maps, work)
    complete = [replace(b, skipped=without, linearised=line) for b, (without, line) in zip(blocks, costs, strict=True)]
    return Profile(type(model).__name__, tuple(complete), measured, loss, time.perf_counter() - began)


class ProfileWork:
    """How much is done of the passes, the fits and the runs of the changed model, in windows that a layer reads."""

    def __init__(self, report: Any, blocks: int, counts: Sequence[int], fits: int, losses: bool) -> None:
        self.report, self.done, self.blocks = report, 0, blocks
        self.fit = 1 + 10 * fits
        self.total = blocks * (sum(counts) + self.fit + 2 * counts[2] * losses)

    def step(self, amount: int = 1) -> None:
        """So much more is done."""
        self.done += amount
        if self.report:
            self.report(min(self.done, self.total), self.total)

    def fitted(self) -> None:
        """A block more is fitted."""
        self.step(self.fit)


def parts_of(text: Any, tokenizer: Any, tokens: int, test: int, length: int) -> tuple[Tensor, Tensor, Tensor]:
    """Windows to fit on, to choose by and to measure on."""
    rows = windows(text, tokenizer, length, most=max(1, tokens // length) + max(1, test // length))
    if len(rows) < 3:
        raise GatelabError(
            f"the text has {counted(len(rows), 'window')} of {length} tokens; three at least are needed, to fit on, to"
            " choose by and to measure on: give a longer text or a smaller length"
        )
    share = max(1, test // length) / (max(1, tokens // length) + max(1, test // length))
    calibration, measured = split(rows, min(max(share, 1 / len(rows)), 1 - 2 / len(rows)))
    fitted, chosen = split(calibration, max(VALIDATION, 1 / len(calibration)))
    return fitted, chosen, measured


@contextmanager
def ready(model: nn.Module) -> Iterator[None]:
    """The model in evaluation mode, without gradients and without a cache of keys; afterwards as it was."""
    config = getattr(model, "config", None)
    cache = getattr(config, "use_cache", None)
    if cache is not None and config is not None:
        config.use_cache = False
    try:
        with evaluating(model), torch.no_grad():
            yield
    finally:
        if cache is not None and config is not None:
            config.use_cache = cache


def batches(rows: Tensor, size: int = 512) -> Iterator[Tensor]:
    """Windows, some hundred tokens at a time."""
    count = max(1, size // rows.shape[1]) if not rows.is_floating_point() else 8
    for start in range(0, len(rows), count):
        yield rows[start : start + count]


def collected(
    model: nn.Module, taps: Sequence[Tap], parts: tuple[Tensor, Tensor, Tensor], memory: float, work: ProfileWork
) -> tuple[list[Moments], list[BlockRows], tuple[int, int, int]]:
    """Counters and Gram matrices of the rows to fit on; the rows themselves of all three parts, or some of them."""
    place, bare = next(model.parameters()).device, without_head(model)
    stored: list[list[list[tuple[Tensor, Tensor, Tensor]]]] = [[[] for _ in taps] for _ in parts]
    sizes = [0, 0, 0]
    moments, keep = prepared(bare, taps, parts[0][:1].to(place), parts, memory)
    generator = torch.Generator().manual_seed(0)
    for p, rows in enumerate(parts):
        start = 0
        for batch in batches(rows):

            def listen(i: int, flow: Flow, p: int = p, start: int = start, windows: int = len(batch)) -> None:
                if p == 0:
                    moments[i].add(flow)
                count = len(flow.x)
                sizes[p] += count * (i == 0)
                chosen = torch.arange(count)
                if keep > 1:  # at random: every so many would be the same places of all windows
                    chosen = torch.randperm(count, generator=generator)[: math.ceil(count / keep)].sort().values
                here = chosen.to(flow.x.device)
                stored[p][i].append((flow.x[here], flow.y[here], start + chosen * windows // count))

            with tapped(taps, listen):
                bare(batch.to(place))
            start += len(batch)
            work.step(len(taps) * len(batch))
    rows_kept = []
    for i in range(len(taps)):
        fit, chosen, test = (tuple(torch.cat(part) for part in zip(*stored[p][i], strict=True)) for p in range(3))
        rows_kept.append(BlockRows(fit[0], fit[1], (chosen[0], chosen[1]), (test[0], test[1]), test[2]))
    return moments, rows_kept, (sizes[0], sizes[1], sizes[2])


def prepared(
    model: nn.Module, taps: Sequence[Tap], batch: Tensor, parts: Sequence[Tensor], memory: float
) -> tuple[list[Moments], int]:
    """Empty counters of every block, and of how many rows one is kept, by what the sizes need of memory."""
    shapes: dict[int, tuple[int, int, int]] = {}

    def listen(i: int, flow: Flow) -> None:
        shapes[i] = (len(flow.x), flow.x.shape[1], flow.y.shape[1])

    with tapped(taps, listen):
        model(batch[:1])
    if len(shapes) < len(taps):
        missing = next(tap.name for i, tap in enumerate(taps) if i not in shapes)
        raise GatelabError(f"the model does not call {missing}; give other modules")
    counts = [sum(map(len, parts)) * rows for rows, _, _ in shapes.values()]
    grams = sum(
        8 * (d_in**2 + d_in * d_out + d_out**2 + (0 if tap.block is None else tap.block.width**2))
        for tap, (_, d_in, d_out) in zip(taps, (shapes[i] for i in range(len(taps))), strict=True)
    )
    rows = sum(4 * count * (d_in + d_out) for count, (_, d_in, d_out) in zip(counts, shapes.values(), strict=True))
    if grams > memory:
        raise GatelabError(
            f"Gram matrices of {counted(len(taps), 'block')} need {grams / 2**30:.2g} GiB and memory is"
            f" {memory / 2**30:.2g} GiB; give more memory, or some blocks at a time by modules=[...]"
        )
    keep = max(1, math.ceil(rows / max(memory - grams, rows / 64)))
    check_memory(grams + rows / keep, "a profile", "give fewer tokens or some blocks at a time by modules=[...]")
    return [Moments(tap, len(parts[0]) * shapes[i][0]) for i, tap in enumerate(taps)], keep


def block_profile(
    tap: Tap, moments: Moments, rows: BlockRows, affine: Affine, widths: Sequence[int], steps: int
) -> BlockProfile:
    """What one block does, but for the losses of the model."""
    x, y = rows.test
    centre = moments.mean("y").to(y.dtype)
    wrong, whole = (affine(x) - y).double().square().sum(1), (y - centre).double().square().sum(1)
    if not bool(whole.any()):
        raise GatelabError(f"{tap.name} gives the same for every token; leave it out: modules=[...] names the others")
    linear = share_interval(wrong, whole, rows.windows)
    typical = float((wrong / whole.clamp_min(1e-300)).median())
    unit, name, width = None, "", 0
    if tap.block is not None:
        unit, width = unit_of(tap.block), tap.block.width
        name = unit.name
    curve, bilinear, line = [], math.nan, None
    if widths:
        with torch.enable_grad():
            for w in widths:
                fit = fit_block(rows, unit or "swiglu", w, start=tap.block, steps=steps, seed=0)
                curve.append((w, fit.parameters, fit.error))
            bilinear = fit_block(rows, "bilinear", BILINEAR, start=None, beside=affine, steps=steps).error
    if len(curve) > 2:
        line = slope(np.array([p for _, p, _ in curve]), np.sqrt([e for _, _, e in curve]))
    return BlockProfile(
        number=tap.number, name=tap.name, unit=name, width=width, d_in=x.shape[1], d_out=y.shape[1],
        statistics=moments.statistics(), linear=linear, typical=typical, bilinear=bilinear, curve=tuple(curve),
        slope=line, skipped=None, linearised=None,
    )  # fmt: skip


def share_interval(wrong: Tensor, whole: Tensor, groups: Tensor | None) -> Interval:
    """The sum of squared errors over that of the squares, with an interval that draws windows with replacement."""
    value = float(wrong.sum() / whole.sum())
    if groups is None:
        groups = torch.arange(len(wrong))
    known, which = groups.unique(return_inverse=True)  # of some windows no row may be left
    count = len(known)
    sums = [torch.zeros(count, dtype=torch.float64).index_add_(0, which, part.cpu()).numpy() for part in (wrong, whole)]
    drawn = resampled(count, DRAWS, np.random.default_rng(0))
    if count < 3:
        return Interval(value, math.nan, math.nan)
    return percentile_interval(value, sums[0][drawn].sum(1) / sums[1][drawn].sum(1))


def unit_of(block: Block) -> Unit:
    """The unit that a block is: the one whose gate has the same values and which has as many factors.

    >>> W = torch.eye(2)
    >>> unit_of(Block("", W, W[0], W, W[0], nn.SiLU(), ((W, W[0]),))).name
    'swiglu'
    """
    z = torch.linspace(-6, 6, 49)
    values = block.activation(z.to(block.W1)).to(z)
    for known in units():
        same = isinstance(known, Unit) and known.factors == len(block.factors)
        # The formula of GELU by tanh is within 5e-4 of the one by erf.
        if same and torch.allclose(known.gate(z), values, atol=2e-3):
            return known
    gate = activation(block.activation)
    return Unit(activation=gate, factors=len(block.factors))


def layer_rows(
    model: nn.Module,
    layers: Sequence[str | int],
    text: Any,
    *,
    tokenizer: Any = None,
    tokens: int = TOKENS,
    test: int = TEST,
    length: int | None = None,
    memory: float = MEMORY,
) -> list[BlockRows]:
    """Inputs and outputs of some blocks of a model, in three parts that share no window.

    Args:
        model: as in `profile`.
        layers: numbers of layers that hold a block, or names of modules.
        text: as in `profile`.
        tokenizer: likewise.
        tokens: how many to fit on and to choose by.
        test: how many to measure on.
        length: as in `profile`.
        memory: bytes for all of it; of rows fewer are kept where they would need more.

    Returns:
        The rows of each block.
    """
    taps = taps_of(model, [layer_name(model, layer) for layer in layers])
    tokens, test = whole_number("tokens", tokens, 2), whole_number("test", test, 1)
    parts = parts_of(text, tokenizer, tokens, test, window_length(model, text, length, LENGTH))
    for rows in parts:
        check_tokens(model, rows)
    with ready(model):
        check_reads(model, parts[0])
        return collected(model, taps, parts, memory, ProfileWork(None, len(taps), [1, 1, 1], 0, False))[1]


def layer_name(model: nn.Module, layer: str | int) -> str:
    """The name of a layer that was given by its number among those that hold a block; names stay as they are."""
    if isinstance(layer, str):
        return layer
    layers = layers_of(model)
    return layers[whole_number("layer", layer, 0, len(layers) - 1)].name


def layer_problem(model: nn.Module, layer: str | int, text: Any, **options: Any) -> Problem:
    """Inputs and outputs of a block as a problem for every solver.

    Args:
        model: as in `profile`.
        layer: the number of a layer that holds a block, or the name of a module.
        text: as in `profile`.
        **options: further ones of `layer_rows`.

    Returns:
        A problem with as many inputs and outputs as the block has; its test rows are of other windows.
    """
    (rows,) = layer_rows(model, [layer], text, **options)
    # numpy has no bfloat16.
    x, y = (torch.cat(pair).float().cpu().numpy() for pair in zip((rows.x, rows.y), rows.validation, strict=True))
    x_test, y_test = (part.float().cpu().numpy() for part in rows.test)
    # Windows that begin with the same token begin with the same row.
    known = {row.tobytes() for row in x}
    fresh = np.array([row.tobytes() not in known for row in x_test])
    name = f"{type(model).__name__} {layer_name(model, layer)}"
    return Problem.from_arrays(x, y, test=(x_test[fresh], y_test[fresh]), name=name)


# ---- losses of the model


def measured_costs(
    model: nn.Module, taps: Sequence[Tap], rows: Tensor, maps: Sequence[Affine], work: ProfileWork
) -> tuple[Sequence[tuple[Interval, Interval]], float]:
    """What the model loses without each block, and with a linear map in its place, window by window."""
    speaks = is_language_model(model, rows)
    lost: list[tuple[list[Tensor], list[Tensor]]] = [([], []) for _ in taps]
    losses, device = [], next(model.parameters()).device
    for batch in batches(rows):
        batch = batch.to(device)
        with remembered(taps) as earlier:
            clean = outcome(model, batch, speaks)
        losses.append(clean)
        for i, tap in enumerate(taps):
            for costs, function in zip(lost[i], (None, maps[i]), strict=True):
                with recalled(earlier[i]), replaced(tap, function):
                    costs.append(cost(outcome(model, batch, speaks), clean, speaks))
                work.step(len(batch))
    loss = math.nan
    if speaks:
        loss = float(torch.cat(losses).mean())
    intervals = [(t_interval(torch.cat(a).numpy()), t_interval(torch.cat(b).numpy())) for a, b in lost]
    return intervals, loss


def outcome(model: nn.Module, batch: Tensor, speaks: bool) -> Tensor:
    """The loss of each window, or what the model gives."""
    if speaks:
        return token_losses(model, batch).mean(1).double().cpu()
    return first_tensor(without_head(model)(batch)).double().cpu()


def cost(changed: Tensor, clean: Tensor, speaks: bool) -> Tensor:
    """Nats more a token in each window; or the share of the variance of each output that is wrong."""
    if speaks:
        return changed - clean
    wrong = (changed - clean).flatten(1).square().sum(1)
    return wrong / (clean - clean.mean(dim=tuple(range(clean.ndim - 1)))).flatten(1).square().sum(1)


@contextmanager
def replaced(tap: Tap, function: Callable[[Tensor], Tensor] | None) -> Iterator[None]:
    """The model with another function in the place of a block, None for zeros."""
    inputs: list[Tensor] = []

    def enter(_: nn.Module, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        inputs[:] = [first_tensor(first_argument(arguments, options))]

    def leave(_: nn.Module, __: Any, result: Any) -> Any:
        values = torch.zeros_like(first_tensor(result)) if function is None else function(inputs[0])
        return (values, *result[1:]) if isinstance(result, tuple) else values

    hooks = [
        tap.entrance.register_forward_pre_hook(enter, with_kwargs=True),
        tap.exit.register_forward_hook(leave),
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def remembered(taps: Sequence[Tap]) -> Iterator[list[dict[nn.Module, Any]]]:
    """For every block what the layers give that the model has left when it comes to the block, whatever their order.

    A layer that the model calls more than once is not among them: what it gives later may depend on the block.
    """
    outputs: dict[nn.Module, Any] = {}
    earlier: list[dict[nn.Module, Any]] = [{} for _ in taps]
    called, again = set[int](), set[nn.Module]()

    def enter(i: int) -> None:
        if i not in called:
            called.add(i)
            earlier[i].update(outputs)

    def leave(module: nn.Module, result: Any) -> None:
        if module in outputs:
            again.add(module)
        outputs[module] = result

    hooks = [tap.entrance.register_forward_pre_hook(lambda *_, i=i: enter(i)) for i, tap in enumerate(taps)]
    layers = {tap.layer.module for tap in taps if tap.layer is not None}
    hooks += [layer.register_forward_hook(lambda module, _, result: leave(module, result)) for layer in layers]
    try:
        yield earlier
    finally:
        for hook in hooks:
            hook.remove()
        for layer in again:
            for results in earlier:
                results.pop(layer, None)


@contextmanager
def recalled(outputs: Mapping[nn.Module, Any]) -> Iterator[None]:
    """The model in which these layers, on which nothing changed, give at once what they gave before."""
    own = {module: vars(module).get("forward") for module in outputs}  # what was set on a layer itself comes back
    for module, output in outputs.items():
        module.forward = lambda *_, output=output, **__: output
    try:
        yield
    finally:
        for module, forward in own.items():
            del module.forward
            if forward is not None:
                module.forward = forward


# ---- words


def runs(blocks: Sequence[BlockProfile]) -> Iterator[list[BlockProfile]]:
    """Layers that follow each other in the model and are linear in the same degree; other modules one by one."""
    run: list[BlockProfile] = []
    for block in sorted(blocks, key=lambda block: math.inf if block.number is None else block.number):
        follows = run and block.number is not None and block.number - 1 == run[-1].number
        if run and not (follows and band(block.explained) == band(run[0].explained)):
            yield run
            run = []
        run.append(block)
    if run:
        yield run


def band(share: float) -> str:
    """How linear a block is, in a word."""
    if share >= MOSTLY:
        return "mostly"
    if share >= HALF:
        return "half"
    return "hardly"


def span(values: Sequence[float]) -> str:
    """Shares as percents, from the least to the largest."""
    low, high = percent(min(values)), percent(max(values))
    return low if low == high else f"{low} to {high}"


def sentences_of(result: Profile) -> Iterator[str]:
    """The sentences of a profile."""
    for run in runs(result.blocks):
        subject = f"{run[0].heading} is" if len(run) == 1 else f"Layers {run[0].label} to {run[-1].label} are"
        yield (
            f"{subject} {span([block.explained for block in run])} % linear: so much of the variance of the output is"
            " explained by the best linear map."
        )
    few = [block for block in result.blocks if abs(block.typical - block.linear.value) > APART]
    if few:
        numbers = ", ".join(block.label for block in few)
        yield (
            f"In {counted(len(few), 'layer')} a few tokens hold most of the variance ({numbers}): of the output at the"
            f" median token the linear map leaves {span([block.typical for block in few])} %."
        )
    unit = "nats a token" if math.isfinite(result.loss) else "of the variance of the model's output"
    linearised = [(block, block.linearised) for block in result.blocks if block.linearised is not None]
    if linearised:
        cheap = [lost for _, lost in linearised if lost.value < SMALL]
        sure = [lost for _, lost in linearised if lost.high < SMALL]
        bound = "1 % of perplexity" if math.isfinite(result.loss) else "1 % of the variance of the model's output"
        yield (
            f"{len(cheap)} of {counted(len(linearised), 'block')} cost less than {bound} when made linear, one at a"
            f" time; for {len(sure)} of them the interval decides it."
        )
        worst, lost = max(linearised, key=lambda pair: pair[1].value)
        if lost.low > 0:
            yield f"{worst.heading} costs the most when made linear: {lost:.2g} {unit}."
    skipped = [(block, block.skipped) for block in result.blocks if block.skipped is not None]
    if skipped:
        worst, lost = max(skipped, key=lambda pair: pair[1].value)
        if lost.low > 0:
            yield f"{worst.heading} is needed most: without it the model loses {lost:.2g} {unit}."
        elif lost.low <= 0:
            yield f"No loss without one block differs significantly from 0: the largest is {lost:.2g} {unit}."
    yield from words_of_statistics(result)


def words_of_statistics(result: Profile) -> Iterator[str]:
    """What the counters say."""
    known = [block for block in result.blocks if block.statistics.get("largest") is not None]
    if not known:
        return
    dead = sum(int(block.statistics["dead"]) for block in known)
    neurons = sum(block.width for block in known)
    if dead:
        worst = max(known, key=lambda block: block.statistics["dead"])
        number = f"{dead} of {neurons} neurons are dead, {int(worst.statistics['dead'])} of them in layer {worst.label}"
        yield f"{number}: on this text they stay below a thousandth of the usual size."
    else:
        yield f"None of the {neurons} neurons is dead on this text."
    worst = max(known, key=lambda block: block.statistics["largest"])
    yield (
        f"The largest single activation is {worst.statistics['largest']:.0f} times the usual size, in layer"
        f" {worst.label}; one in ten thousand is beyond {worst.statistics['tail']:.0f} times."
    )
    widths = [block.statistics["effective width"] / block.width for block in known]
    yield f"The energy of a block is that of {span(widths)} % of its neurons (participation ratio)."
    aligned = [block for block in known if math.isfinite(block.statistics["alignment"])]
    if aligned:
        mean = sum(block.statistics["alignment"] for block in aligned) / len(aligned)
        chance = sum(math.sqrt(2 / (math.pi * block.d_in)) for block in aligned) / len(aligned)
        how = "aligned" if mean > 2 * chance else "hardly more aligned than by chance"
        sizes = f"their cosines have the mean size {mean:.2g}, those of random rows {chance:.2g}"
        yield f"Gate and up rows are {how}: {sizes}."


# ---- the figure


def figure_of(result: Profile, ax: Any = None) -> Figure:
    """Three panels by layer: variance left, losses of the model, sizes of activations."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    from gatelab.plotting.panel import Pen, canvas
    from gatelab.plotting.theme import look, style

    # Modules that are no layers have no number: then all are drawn by their rows in the table.
    axis = "layer" if all(block.number is not None for block in result.blocks) else "row of the table"
    blocks = sorted(result.blocks, key=lambda block: block.number or 0) if axis == "layer" else result.blocks
    places = {block.name: block.number if axis == "layer" else i for i, block in enumerate(blocks)}
    with style():
        place = canvas(11.0, 4.0, 3, ax)
        left, middle, right = place.panels
        series: list[tuple[str, list[float], str]] = [("linear map", [b.linear.value for b in blocks], "mlp")]
        if any(math.isfinite(b.bilinear) for b in blocks):
            series.append((f"and bilinear, width {BILINEAR}", [b.bilinear for b in blocks], "relu3"))
        if all(b.curve for b in blocks):
            w = blocks[0].curve[-1][0]
            series.append((f"own unit, width {w}", [b.curve[-1][2] for b in blocks], "glu"))
        for name, values, key in series:
            shape = look(key)
            left.line([*places.values()], values, Pen(shape.colour, marker=shape.marker), label=name)
        left.set(xlabel=axis, ylabel="share of the variance left", title="What smaller maps leave")
        left.axes.set_ylim(0, None)
        left.legend_below(distance=0.18)
        lost = [b for b in blocks if b.skipped is not None and b.linearised is not None]
        for name, key in (("skipped", "gqu"), ("made linear", "mlp")):
            values = [(b.skipped if name == "skipped" else b.linearised) for b in lost]
            shape = look(key)
            if lost:
                points = [max(v.value, FOOT) for v in values if v is not None]
                middle.line([places[b.name] for b in lost], points, Pen(shape.colour, marker=shape.marker), label=name)
        unit = "nats a token" if math.isfinite(result.loss) else "share of the output's variance"
        middle.set(xlabel=axis, ylabel=f"{unit} ({FOOT:g} or less at the foot)", title="What the model loses")
        if lost:
            middle.set(yscale="log")
            middle.legend_below(distance=0.18)
        else:
            middle.text("not measured", 0.5, 0.5)
        known = [b for b in blocks if "largest" in b.statistics]
        for name, key in (("largest", "glu"), ("tail", "relu2")):
            shape = look(key)
            if known:
                label = "largest" if name == "largest" else "one in 10 000 beyond"
                sizes = [max(b.statistics[name], 1e-3) for b in known]
                right.line([places[b.name] for b in known], sizes, Pen(shape.colour, marker=shape.marker), label=label)
        right.set(xlabel=axis, ylabel="times the usual size", title="Single activations")
        if known:
            right.set(yscale="log")
            right.axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            right.axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            right.axes.yaxis.set_minor_formatter(NullFormatter())
            right.legend_below(distance=0.18)
        else:
            right.text("neurons are not known", 0.5, 0.5)
        place.title(f"Blocks of {result.model}")
    return place.figure
