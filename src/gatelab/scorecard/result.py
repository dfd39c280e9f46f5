"""`Scorecard`: units side by side on one problem, and the recommendation."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gatelab.display import counted, one_line, shorten
from gatelab.scaling import Scaling
from gatelab.scorecard.cost import Bench
from gatelab.scorecard.evidence import LeftOut, Network, Score
from gatelab.scorecard.paired import DRAWS, Estimate
from gatelab.scorecard.recommend import Recommendation

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Settings:
    """What was asked for: parameters, seeds, features m, the share of the variance left that counts as trained."""

    budget: int
    seeds: int
    features: int
    loss: float
    bench: Bench
    minimax_interval: tuple[float, float]

    def __repr__(self) -> str:
        return one_line(self, f"{self.budget} parameters, {counted(self.seeds, 'seed')}, {self.features} features")


@dataclass(frozen=True)
class Scorecard:
    """What `compare` found: a `Score` a unit at the budget, every network on the way, and what follows from them.

    `floor` is the least test RMSE reached, with its interval, where the data set it and not the units; else None.
    `left_out` are the networks that were fitted and do not count for the comparison or the slope, each with its reason.
    """

    problem: str
    inputs: int
    outputs: int
    train_rows: int
    test_rows: int
    settings: Settings
    scores: tuple[Score, ...]
    networks: tuple[Network, ...]
    scaling: Scaling
    recommendation: Recommendation
    floor: Estimate | None
    left_out: tuple[LeftOut, ...] = ()

    def __repr__(self) -> str:
        return one_line(self, f"{shorten(', '.join(self.units))} on {shorten(self.problem)}: {self.recommendation}")

    @property
    def units(self) -> tuple[str, ...]:
        return tuple(s.unit for s in self.scores)

    def score(self, unit: str) -> Score:
        """The numbers of one unit."""
        return next(s for s in self.scores if s.unit == unit)

    def table(self) -> pd.DataFrame:
        """A row a unit, in the order in which they were given; the columns are the fields of `Score`."""
        import pandas as pd

        return pd.DataFrame([asdict(s) for s in self.scores])

    def methods(self) -> tuple[str, ...]:
        """How each number was made, in sentences."""
        s, b = self.settings, self.settings.bench
        low, high = s.minimax_interval
        return (
            f"{self.train_rows} rows of {self.inputs} input{'s' * (self.inputs != 1)} were fitted and {self.test_rows} "
            "held out; all errors are on those.",
            f"Equal parameters: of every unit the width nearest to {s.budget} parameters from below, and smaller ones "
            f"for the slopes. RMSE is the mean over {s.seeds} seeds; its 95 % interval is from {DRAWS} draws of test "
            "rows and seeds.",
            "Condition numbers are of the tangent kernel at that width on standardised training rows with a 1 for the "
            "bias, expected over LeCun initialisations, with proved bounds.",
            f"Steps are those of gradient descent on all rows at 1 / lambda_max until {s.loss:.0%} of the target's "
            "variance is left, in the kernel regime.",
            f"Linearisation: RMSE of maps with {s.features} features in all, over the deviation of the unit's neuron; "
            f"polynomial: largest error of degree 8 of the gate on [{low:.2f}, {high:.2f}], over the gate's deviation.",
            f"Rows a second: the transformer's block of d_model {b.d_model} with the parameters of an MLP four times "
            f"as wide, {b.batch} rows a call, median and quartiles of {b.repeats} calls, on {b.device}.",
        )

    def _repr_html_(self) -> str:
        from gatelab.plotting.notebook import html

        columns = ("unit", "width", "parameters", "test RMSE", "slope in P", "condition", "steps", "rows/s")
        rows = [
            [
                s.unit,
                str(s.width),
                str(s.parameters),
                f"{s.rmse:.3g} [{s.rmse_low:.3g}, {s.rmse_high:.3g}]",
                *(f"{value:.3g}" for value in (s.slope, s.condition, s.steps, s.rows_per_second)),
            ]
            for s in self.scores
        ]
        return html(f"{self.problem}: {self.recommendation}", rows, columns=columns, figure=self.plot())

    def plot(self, path: str | Path | None = None, *, ax: Any = None) -> Figure:
        """Six panels: error against P, error at the budget, conditioning, steps, linearisation, throughput.

        Written to `path` (.png, .svg or .pdf) if given, and drawn into six axes of your own with `ax`.
        """
        from gatelab.plotting import saved
        from gatelab.scorecard.draw import draw

        return saved(draw(self, ax), path)
