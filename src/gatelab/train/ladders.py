"""`Ladder`: a table of trainings of one language model over units, sizes and seeds, with rates, law and figure."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from gatelab.display import ProgressLike, one_line
from gatelab.errors import GatelabError, unknown_name
from gatelab.files import write_whole
from gatelab.plotting import saved
from gatelab.plotting.curves import ladder_figure
from gatelab.scaling_laws import LadderLaw, compare_ladder, fit_ladder, read_ladder
from gatelab.scaling_laws.ladder_losses import DRAWS
from gatelab.statistics import t_interval
from gatelab.sweep import Record, Run, Store
from gatelab.sweep.backends import opened
from gatelab.train.ladder_runs import STORED_PARTS, TASK, run_of, training_rows
from gatelab.train.rates import RateRule, at_end, best_rate, excess

Frame = Any  # a data frame; the stubs of pandas do not know its columns
BITS = math.log(2)
FEW = 20  # draws for the law of a figure, which shows no intervals of it
COLUMNS = (
    "unit", "size", "d_model", "parameters", "lr", "seed", "repeats", "part", "loss", "train", "lowest", "diverged",
    "tokens", "flops", "seconds", "throughput", "together", "device",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Ladder:
    """All trainings of a ladder.

    Attributes:
        text: the name of the text.
        records: of its runs, including sweeps of learning rates.
        facts: device, date, command and shared settings.
    """

    text: str
    records: tuple[Record, ...]
    facts: Mapping[str, Any]

    def __repr__(self) -> str:
        # `table` raises for a ladder with several learning rates and no rule.
        all_of_them: Frame = self.trainings
        tested = all_of_them[all_of_them["part"] == "test"].drop_duplicates(["unit", "size", "repeats", "seed"])
        units, sizes = tested["unit"].nunique(), tested["size"].nunique()
        return one_line(self, f"{units} units, {sizes} sizes, {len(tested)} trainings on {self.text}")

    @cached_property
    def trainings(self) -> pd.DataFrame:
        """One row per training, including sweeps of learning rates, in a fixed order.

        `repeats` is the number of epochs, `part` the part of the text on which `loss` is measured, in nats per token:
        "test", or "valid" in sweeps. `parameters` excludes the vocabulary's. `train` is the loss on the training part,
        `lowest` the lowest on `part`, and `diverged` the step at which a training diverged; its losses are NaN.
        `seconds` is the time of all models trained `together` over their number, `throughput` their tokens per second.
        """
        ended = sorted(self.records, key=lambda record: record.time)
        rows = [row for record in ended for row in training_rows(record)]
        table = pd.DataFrame(rows, columns=list(COLUMNS))
        table = table.drop_duplicates(["part", "unit", "size", "lr", "seed", "repeats", "tokens"], keep="last")
        return table.sort_values(["part", "repeats", "parameters", "unit", "lr", "seed"], ignore_index=True)

    def table(self, part: str = "test") -> pd.DataFrame:
        """One training per unit, size, repeats and seed, with the loss also in bits per token.

        Args:
            part: "test", or "valid" for the sweeps of learning rates. If a unit was tested at a size with several
                learning rates, the one nearest to the rule's is used.

        Returns:
            The columns of `trainings` and `bits`.
        """
        if part not in STORED_PARTS:
            raise unknown_name("part of a text", str(part), STORED_PARTS)
        table: Frame = self.trainings
        own = table[table["part"] == part]
        if part == "test":
            own = self._counting(own)
        return own.assign(bits=own["loss"] / BITS).reset_index(drop=True)

    def _counting(self, tested: Frame) -> Frame:
        """The trainings at the learning rates nearest to the rule's."""
        keys = ["unit", "size", "repeats"]
        several = tested.groupby(keys)["lr"].transform("nunique") > 1
        if not several.any():
            return tested
        rule, left_out = self.rule(), []
        for (unit, size, _), own in tested[several].groupby(keys):
            tried = sorted(set(own["lr"]))
            if unit not in rule.scales:
                raise GatelabError(
                    f"{unit} was trained at {size} with the learning rates {', '.join(f'{lr:g}' for lr in tried)}, and "
                    "no sweep selects one of them; keep each in a separate store, or give lrs=None, which sweeps"
                )
            wanted = rule.rate(unit, own["d_model"].iloc[0])
            nearest = min(tried, key=lambda lr: abs(math.log(lr / wanted)))
            left_out += own.index[own["lr"] != nearest].tolist()
        return tested.drop(index=left_out)

    def sweeps(self) -> list[tuple[str, str, int, list[float], list[float]]]:
        """The sweeps: unit, size, d_model, learning rates and their losses."""
        swept: Frame = self.table("valid")
        groups = swept.groupby(["unit", "size", "d_model"], sort=False)
        return [(*key, own["lr"].tolist(), own["loss"].tolist()) for key, own in groups]

    def rule(self) -> RateRule:
        """The rule for learning rates across sizes, from sweeps whose best rate is not at an end."""
        swept = [(unit, width, best_rate(*sweep), at_end(*sweep)) for unit, _, width, *sweep in self.sweeps()]
        between = {unit for unit, _, _, end in swept if not end}
        return RateRule.of(row[:3] for row in swept if not row[3] or row[0] not in between)

    def rates(self) -> pd.DataFrame:
        """The best learning rates, those of the rule, those in use, and the excess loss of the latter.

        Returns:
            One row per sweep. `end` is -1 or 1 if the best rate is the smallest or the largest of the sweep; `excess`
            is then a lower bound. Without test runs, `excess` is that of the rule's rate.
        """
        own = self.regime(1)
        used = dict(zip(zip(own["unit"], own["d_model"], strict=True), own["lr"], strict=True))
        rule, rows = self.rule(), []
        for unit, size, width, *sweep in self.sweeps():
            wanted, lr = rule.rate(unit, width), used.get((unit, width), math.nan)
            cost = excess(wanted if math.isnan(lr) else lr, *sweep)
            rows.append((unit, size, best_rate(*sweep), at_end(*sweep), wanted, lr, cost))
        return pd.DataFrame(rows, columns=["unit", "size", "best", "end", "rule", "used", "excess"])

    def regime(self, repeats: int) -> pd.DataFrame:
        """The rows of `table` with this number of epochs, to which laws are fitted."""
        table: Frame = self.table()
        own = table[table["repeats"] == repeats]
        return own.assign(diverged=own["diverged"].notna())

    def law(self, *, repeats: int = 1, draws: int = DRAWS, progress: ProgressLike = None) -> LadderLaw:
        """The law L = E + A P^-a with an A for each unit, and the sizes at which units have equal losses.

        Args:
            repeats: the number of epochs.
            draws: of the bootstrap.
            progress: as in `fit_ladder`.

        Returns:
            The law, with intervals and `factor`.
        """
        return fit_ladder(self.regime(repeats), draws=draws, progress=progress)

    def comparisons(self, *, repeats: int = 1) -> Frame:
        """All pairs of units at each size and over all sizes, paired by seed, with Holm's correction."""
        return compare_ladder(read_ladder(self.regime(repeats), least_sizes=1))

    def plot(self, path: str | Path | None = None, *, repeats: int = 1, ax: Any = None) -> Figure:
        """Mean losses against parameters with t-intervals over seeds, and the law if three sizes or more allow one.

        Args:
            path: of the file (.png, .svg or .pdf), if the figure is to be saved.
            repeats: the number of epochs.
            ax: matplotlib's axes to draw into.

        Returns:
            The figure.
        """
        own: Frame = self.regime(repeats).dropna(subset=["loss"])
        if own.empty:
            raise GatelabError(f"no training with repeats {repeats} has a loss, so there is nothing to draw")
        means, law, title = {}, None, "Mean losses, without a law"
        for unit, rows in own.groupby("unit", sort=False):
            intervals = rows.groupby("parameters")["loss"].apply(lambda losses: t_interval(losses.to_numpy()))
            columns = np.array([(one.value, one.low, one.high) for one in intervals]).T
            means[unit] = intervals.index.to_numpy(float), columns
        with suppress(GatelabError):
            fitted = self.law(repeats=repeats, draws=FEW, progress=False)
            means = {unit: means[unit] for unit in fitted.losses.units}
            law, title = fitted.predict, f"L = {fitted.E.value:.3g} + A P^-{fitted.exponent.value:.3g}, A by unit"
        how = {"loss_label": "test loss, nats per token", "title": title, "ax": ax}
        return saved(ladder_figure(means, law, **how), path)

    def plain(self) -> dict[str, Any]:
        """The ladder in JSON's types; raises if a unit cannot be imported."""
        for record in self.records:
            run_of(record.run.arguments).recipe.plain()
        names = ("arguments", "metrics", "device", "time")
        runs = [{name: getattr(r, name) for name in names} | {"metrics": dict(r.metrics)} for r in self.records]
        return {"text": self.text, "facts": dict(self.facts), "runs": runs}

    @staticmethod
    def from_plain(values: Mapping[str, Any]) -> Ladder:
        """Read the ladder that `plain` wrote."""
        records = [
            Record(Run(TASK, v["arguments"]), "done", v["metrics"], device=v["device"], time=v["time"])
            for v in values.get("runs") or values["rungs"]  # the word in older records
        ]
        return Ladder(values["text"], tuple(records), values["facts"])

    def save(self, path: str | Path) -> Path:
        """Write the ladder as a JSON record with one line per run."""
        values = self.plain()
        runs = ",\n".join(json.dumps(run) for run in values.pop("runs"))
        return write_whole(path, f'{json.dumps(values)[:-1]}, "runs": [\n{runs}\n]}}\n')

    @staticmethod
    def read(path: str | Path) -> Ladder:
        """Read the ladder that `save` wrote."""
        try:
            return Ladder.from_plain(json.loads(Path(path).read_text()))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise GatelabError(f"{path} is not a record of a ladder ({error}); give one of Ladder.save") from error

    def fill(self, store: Store | str | Path) -> int:
        """Copy all runs to a store or its file, from which `ladder` can continue; the number of new runs in it."""
        self.plain()  # raises if a unit cannot be imported
        with opened(store) as database:
            assert database is not None
            return database.put_all(self.records)
