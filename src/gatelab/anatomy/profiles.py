"""What every feed-forward block of a given model does, and how hard it is to replace, as values and in words.

    gl.profile(model, text, tokenizer=tokenizer)      .table() .sentences() .plot() .save("profile.json")

Here are the results with their sentences and figure; `profiling` measures.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gatelab.display import counted, one_line
from gatelab.files import write_whole
from gatelab.plain import to_plain
from gatelab.scaling_laws import Slope
from gatelab.statistics import Interval

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

BILINEAR = 64  # neurons of the unit beside the linear map
MOSTLY, HALF = 0.8, 0.5  # shares of the variance from which a block is called mostly and half linear
SMALL = 0.01  # nats: a percent of perplexity
APART = 0.2  # shares left of the variance and at the median token that are further apart than this are told
FOOT = 1e-3  # where the figure draws losses that are as small, or negative
Series = tuple[str, str, list[tuple[str, float]]]  # of the figure: label, key of the look, values by name of a block


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
        return one_line(self, f"{self.name}: {self.unit or 'a module'}, {100 * self.explained:.0f} % linear")

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
        return {**to_plain(self), "sentences": list(self.sentences())}

    def save(self, path: str | Path) -> Path:
        """Write all of it as JSON."""
        return write_whole(Path(path), json.dumps(self.plain(), indent=1).encode())

    def _repr_html_(self) -> str:
        from gatelab.plotting.theme import html

        rows = [(sentence,) for sentence in self.sentences()]
        return html(f"Blocks of {self.model}", rows, figure=self.plot())


# ---- words


def runs(blocks: Sequence[BlockProfile]) -> Iterator[list[BlockProfile]]:
    """Layers that follow each other in the model and are linear in the same degree; other modules one by one."""

    def band(block: BlockProfile) -> int:
        return (block.explained >= MOSTLY) + (block.explained >= HALF)

    run: list[BlockProfile] = []
    for block in sorted(blocks, key=lambda block: math.inf if block.number is None else block.number):
        follows = run and block.number is not None and block.number - 1 == run[-1].number
        if run and not (follows and band(block) == band(run[0])):
            yield run
            run = []
        run.append(block)
    if run:
        yield run


def span(values: Sequence[float]) -> str:
    """Shares as percents, from the least to the largest."""
    low, high = f"{100 * min(values):.0f}", f"{100 * max(values):.0f}"
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

    from gatelab.plotting.theme import canvas, legend_below, look, style

    # Modules that are no layers have no number: then all are drawn by their rows in the table.
    axis = "layer" if all(block.number is not None for block in result.blocks) else "row of the table"
    blocks = sorted(result.blocks, key=lambda block: block.number or 0) if axis == "layer" else result.blocks
    places = {block.name: block.number if axis == "layer" else i for i, block in enumerate(blocks)}
    lost = [b for b in blocks if b.skipped is not None and b.linearised is not None]
    known = [b for b in blocks if "largest" in b.statistics]
    left: list[Series] = [("linear map", "mlp", [(b.name, b.linear.value) for b in blocks])]
    if any(math.isfinite(b.bilinear) for b in blocks):
        left.append((f"and bilinear, width {BILINEAR}", "relu3", [(b.name, b.bilinear) for b in blocks]))
    if all(b.curve for b in blocks):
        left.append((f"own unit, width {blocks[0].curve[-1][0]}", "glu", [(b.name, b.curve[-1][2]) for b in blocks]))
    middle: list[Series] = [
        ("skipped", "gqu", [(b.name, max(b.skipped.value, FOOT)) for b in lost if b.skipped]),
        ("made linear", "mlp", [(b.name, max(b.linearised.value, FOOT)) for b in lost if b.linearised]),
    ]
    right: list[Series] = [
        (label, key, [(b.name, max(b.statistics[name], 1e-3)) for b in known])
        for label, key, name in (("largest", "glu", "largest"), ("one in 10 000 beyond", "relu2", "tail"))
    ]
    unit = "nats a token" if math.isfinite(result.loss) else "share of the output's variance"
    with style():
        place = canvas(11.0, 4.0, 3, ax)
        for axes, title, ylabel, series, empty in (
            (place.axes[0], "What smaller maps leave", "share of the variance left", left, ""),
            (place.axes[1], "What the model loses", f"{unit} ({FOOT:g} or less at the foot)", middle, "not measured"),
            (place.axes[2], "Single activations", "times the usual size", right, "neurons are not known"),
        ):
            axes.set(xlabel=axis, ylabel=ylabel, title=title)
            if not series[0][2]:
                axes.text(0.5, 0.5, empty)
                continue
            for label, key, points in series:
                x: Any = [places[name] for name, _ in points]
                axes.plot(
                    x, [value for _, value in points], color=look(key).color, marker=look(key).marker, label=label
                )
            if empty:
                axes.set_yscale("log")
            else:
                axes.set_ylim(0, None)
            legend_below(axes, distance=0.18)
        if known:
            axis = place.axes[2].yaxis
            axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.set_minor_formatter(NullFormatter())
        place.title(f"Blocks of {result.model}")
    return place.figure
