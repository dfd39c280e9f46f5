"""Results of `profile`: statistics of every feed-forward block of a model, with sentences and a figure.

gl.profile(model, text, tokenizer=tokenizer)      .table() .sentences() .plot() .save("profile.json")
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from gatelab.display import counted, one_line
from gatelab.files import write_whole
from gatelab.plain import to_plain
from gatelab.plotting.theme import canvas, html, legend_below, look, saved, style
from gatelab.scaling_laws import Slope
from gatelab.statistics import Interval

MOSTLY, HALF = 0.8, 0.5  # explained shares of the variance that separate groups of layers
SMALL = 0.01  # nats: 1 % of perplexity
APART = 0.2  # larger differences between the mean and the median token are reported
FOOT = 1e-3  # the smallest number on a logarithmic axis of the figure


@dataclass(frozen=True)
class BlockProfile:
    """The profile of one block.

    Attributes:
        number: the index of its layer in the model; None for other modules.
        name: the name of the layer or module.
        unit: the name of its unit, such as swiglu; empty if unknown.
        width: the number of neurons, 0 if unknown.
        d_in: the number of inputs.
        d_out: the number of outputs.
        statistics: open gates, dead neurons, ranks, tails, alignment, and the size relative to the hidden states.
        linear: the share of the output's variance that the best linear map does not explain, on test windows.
        typical: the same share for the median token.
        curve: (width, parameters, unexplained share) of units of the same kind, by width.
        slope: the slope of the root of the unexplained share against parameters; None with fewer than three widths.
        skipped: the increase of the model's loss without the block in nats per token, or, for a model without logits,
            the relative squared error of its output; None if not measured.
        linearised: the same with the linear map instead of the block.
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
    curve: tuple[tuple[int, int, float], ...]
    slope: Slope | None
    skipped: Interval | None
    linearised: Interval | None

    def __repr__(self) -> str:
        return one_line(self, f"{self.name}: {self.unit or 'a module'}, {100 * self.explained:.0f} % linear")

    @property
    def explained(self) -> float:
        """The share of the output's variance that the best linear map explains, at least 0."""
        return max(0.0, 1 - self.linear.value)

    @property
    def label(self) -> str:
        """The index of its layer as text, or its name."""
        return self.name if self.number is None else str(self.number)

    @property
    def heading(self) -> str:
        """The subject of sentences about the block."""
        return self.name if self.number is None else f"Layer {self.number}"

    def as_row(self) -> dict[str, Any]:
        row: dict[str, Any] = {"layer": self.number, "name": self.name, "unit": self.unit, "width": self.width}
        row |= {"d_in": self.d_in, "d_out": self.d_out, **self.statistics}
        row |= {"left by linear": self.linear.value, "low": self.linear.low, "high": self.linear.high}
        row["typical"] = self.typical
        row |= {f"left by width {width}": error for width, _, error in self.curve}
        for name, value in (("slope", self.slope), ("skipped", self.skipped), ("linearised", self.linearised)):
            if value is not None:
                row |= {name: value.value, f"{name} low": value.low, f"{name} high": value.high}
        return row


@dataclass(frozen=True, eq=False)
class Profile:
    """The profile of a model.

    Attributes:
        model: the class of the model.
        blocks: one `BlockProfile` per block.
        tokens: the numbers of tokens, or patches of images, for training, validation and test.
        loss: the loss of the model on the test windows in nats per token; NaN for a model without logits.
        seconds: the total time.
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
        """One row per block."""
        return pd.DataFrame([block.as_row() for block in self.blocks]).astype({"layer": "Int64"})

    def curves(self) -> pd.DataFrame:
        """The error of units of growing width: one row per block and width."""
        rows = [
            (b.number, b.name, b.unit, width, parameters, error)
            for b in self.blocks
            for width, parameters, error in b.curve
        ]
        names = ["layer", "name", "unit", "width", "parameters", "left"]
        return pd.DataFrame(rows, columns=names).astype({"layer": "Int64"})

    def sentences(self) -> tuple[str, ...]:
        """The main results in words, by fixed rules."""
        return tuple(sentences_of(self))

    def plot(self, path: str | Path | None = None, *, ax: Any = None) -> Figure:
        """Plot nonlinearity, losses of the model without a block, and the largest activations, by layer.

        Saved to `path` (.png, .svg or .pdf) if given, and drawn into three given axes with `ax`.
        """
        return saved(figure_of(self, ax), path)

    def plain(self) -> dict[str, Any]:
        """The profile as plain values, for JSON."""
        return {**to_plain(self), "sentences": list(self.sentences())}

    def save(self, path: str | Path) -> Path:
        """Write the profile as JSON."""
        return write_whole(path, json.dumps(self.plain(), indent=1))

    def _repr_html_(self) -> str:
        rows = [(sentence,) for sentence in self.sentences()]
        return html(f"Blocks of {self.model}", rows, figure=self.plot())


def runs(blocks: Sequence[BlockProfile]) -> list[list[BlockProfile]]:
    """Groups of consecutive layers in the same range of linearity; other modules one by one."""

    def key(place: tuple[int, BlockProfile]) -> tuple[object, ...]:
        i, block = place
        if block.number is None:
            return (i,)
        return block.number - i, block.explained >= MOSTLY, block.explained >= HALF

    ordered = sorted(blocks, key=lambda block: math.inf if block.number is None else block.number)
    return [[block for _, block in run] for _, run in groupby(enumerate(ordered), key)]


def span(values: Sequence[float]) -> str:
    """The range of shares in percent."""
    low, high = f"{100 * min(values):.0f}", f"{100 * max(values):.0f}"
    return low if low == high else f"{low} to {high}"


def sentences_of(result: Profile) -> Iterator[str]:
    for run in runs(result.blocks):
        subject = f"{run[0].heading} is" if len(run) == 1 else f"Layers {run[0].label} to {run[-1].label} are"
        yield (
            f"{subject} {span([block.explained for block in run])} % linear: the best linear map explains that share of"
            " the output's variance."
        )
    few = [block for block in result.blocks if abs(block.typical - block.linear.value) > APART]
    if few:
        numbers = ", ".join(block.label for block in few)
        yield (
            f"In {counted(len(few), 'layer')} a few tokens hold most of the variance ({numbers}): at the median token"
            f" the linear map leaves {span([block.typical for block in few])} % unexplained."
        )
    unit, bound = "nats per token", "1 % of perplexity"
    if not math.isfinite(result.loss):
        unit = "of the variance of the model's output"
        bound = f"1 % {unit}"
    linearised = [(block, block.linearised) for block in result.blocks if block.linearised is not None]
    if linearised:
        cheap = [lost for _, lost in linearised if lost.value < SMALL]
        sure = [lost for _, lost in linearised if lost.high < SMALL]
        yield (
            f"{len(cheap)} of {counted(len(linearised), 'block')} cost less than {bound} when made linear, one at a"
            f" time; for {len(sure)} of them this is significant."
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
    yield from statistics_sentences(result)


def statistics_sentences(result: Profile) -> Iterator[str]:
    known = [block for block in result.blocks if block.statistics.get("largest") is not None]
    if not known:
        return
    dead = sum(int(block.statistics["dead"]) for block in known)
    neurons = sum(block.width for block in known)
    if dead:
        worst = max(known, key=lambda block: block.statistics["dead"])
        number = f"{dead} of {neurons} neurons are dead, {int(worst.statistics['dead'])} of them in layer {worst.label}"
        yield f"{number}: on this text they stay below a thousandth of the root mean square."
    else:
        yield f"None of the {neurons} neurons is dead on this text."
    worst = max(known, key=lambda block: block.statistics["largest"])
    yield (
        f"The largest single activation is {worst.statistics['largest']:.0f} times the root mean square, in layer"
        f" {worst.label}; one in ten thousand exceeds {worst.statistics['tail']:.0f} times."
    )
    widths = [block.statistics["effective width"] / block.width for block in known]
    yield f"The effective width of a block is {span(widths)} % of its neurons (participation ratio)."
    aligned = [block for block in known if math.isfinite(block.statistics["alignment"])]
    if aligned:
        mean = sum(block.statistics["alignment"] for block in aligned) / len(aligned)
        chance = sum(math.sqrt(2 / (math.pi * block.d_in)) for block in aligned) / len(aligned)
        how = "aligned" if mean > 2 * chance else "hardly more aligned than by chance"
        yield f"Gate and up rows are {how}: their mean absolute cosine is {mean:.2g}, for random rows {chance:.2g}."


def figure_of(result: Profile, ax: Any = None) -> Figure:
    """Three panels by layer: unexplained variance, losses of the model, sizes of activations."""
    table, xlabel = result.table(), "row of the table"
    x = table.index.to_series()
    if not table["layer"].hasnans:
        table, xlabel = table.sort_values("layer"), "layer"
        x = table["layer"].astype(float)
    left = [("linear map", "mlp", "left by linear")]
    left += [(f"own unit, width {w}", "glu", f"left by width {w}") for w, _, _ in result.blocks[0].curve[-1:]]
    middle = [("skipped", "gqu", "skipped"), ("made linear", "mlp", "linearised")]
    right = [("largest", "glu", "largest"), ("one in 10 000 beyond", "relu2", "tail")]
    unit = "nats per token" if math.isfinite(result.loss) else "share of the output's variance"
    panels = (
        ("Variance left by smaller maps", "unexplained share of the variance", left, ""),
        ("Loss of the model", f"{unit} ({FOOT:g} or less at the bottom)", middle, "not measured"),
        ("Single activations", "relative to the root mean square", right, "neurons are not known"),
    )
    with style():
        place = canvas(11.0, 4.0, 3, ax)
        for axes, (title, ylabel, series, empty) in zip(place.axes, panels, strict=True):
            axes.set(xlabel=xlabel, ylabel=ylabel, title=title)
            if series[0][2] not in table:
                axes.text(0.5, 0.5, empty)
                continue
            for label, key, column in series:
                values = table[column].dropna()
                if empty:
                    axes.set_yscale("log")
                    values = values.clip(lower=FOOT)
                axes.plot(x[values.index], values, color=look(key).color, marker=look(key).marker, label=label)
            if not empty:
                axes.set_ylim(0, None)
            legend_below(axes, distance=0.18)
        if "largest" in table:
            axis = place.axes[2].yaxis
            axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.set_minor_formatter(NullFormatter())
        place.title(f"Blocks of {result.model}")
    return place.figure
