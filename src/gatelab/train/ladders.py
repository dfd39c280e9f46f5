"""`Ladder`: units x sizes x seeds of one language model as a table of trainings; rates, laws, figure and record."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from gatelab.display import ProgressLike, one_line
from gatelab.errors import GatelabError, unknown_name
from gatelab.files import write_whole
from gatelab.scaling_laws import LadderComparisons, LadderLaws, compare_ladder, fit_ladder, read_ladder
from gatelab.scaling_laws.ladder_losses import DRAWS, LadderAxis
from gatelab.sweep import Record, Run, Store
from gatelab.sweep.backends import opened
from gatelab.train.ladder_runs import PURPOSES, TASK, run_of, training_rows
from gatelab.train.rates import RateRule, at_end, best_rate, excess

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Frame = Any  # a table whose columns may be used without saying what they hold
BITS = math.log(2)
NEAR = 1.25  # a training whose learning rate is within this factor of the rule's need not be made again
COLUMNS = (
    "unit", "size", "d_model", "parameters", "lr", "seed", "repeats", "part", "loss", "train", "lowest", "diverged",
    "tokens", "flops", "seconds", "throughput", "together", "device",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Ladder:
    """All trainings of a ladder.

    Attributes:
        text: the name of the text.
        records: what came of its runs, those that tuned learning rates too.
        facts: what else a record says: device, date, command.
    """

    text: str
    records: tuple[Record, ...]
    facts: Mapping[str, Any]

    def __repr__(self) -> str:
        # Not by `table`, which refuses a ladder that does not say which of its trainings count.
        all_of_them: Frame = self.trainings
        tested = all_of_them[all_of_them["part"] == "test"].drop_duplicates(["unit", "size", "repeats", "seed"])
        units, sizes = tested["unit"].nunique(), tested["size"].nunique()
        return one_line(self, f"{units} units, {sizes} sizes, {len(tested)} trainings on {self.text}")

    @cached_property
    def trainings(self) -> pd.DataFrame:
        """A row a training, sweeps of learning rates included, in an order that does not depend on what ended first.

        `unit`, `size`, `d_model`, `lr` and `seed` are what was trained, `repeats` how often the text was read and
        `part` the part of it that `loss` is of, in nats a token: "test", or "valid" in sweeps. `parameters` are those
        that are not of the vocabulary, `train` is the loss on the training part, `lowest` the lowest on `part` that
        was measured during training, and `diverged` the step at which a training did, whose losses are NaN. `tokens`
        and `flops` were trained on and took; `seconds` are those of all `together` that were trained at once, over
        their number, `throughput` the tokens per second of all, `device` what computed. A seed that was trained again
        with more of them is there once, as it was trained last.
        """
        ended = sorted(self.records, key=lambda record: record.time)
        rows = [row for record in ended for row in training_rows(record)]
        table = pd.DataFrame(rows, columns=list(COLUMNS))
        table = table.drop_duplicates(["part", "unit", "size", "lr", "seed", "repeats", "tokens"], keep="last")
        return table.sort_values(["part", "repeats", "parameters", "unit", "lr", "seed"], ignore_index=True)

    def table(self, part: str = "test") -> pd.DataFrame:
        """The trainings that count, with their loss also in bits a token.

        Args:
            part: "test", or "valid" for the sweeps of learning rates. Where a unit was tested at a size with several
                learning rates, the one that the rule has, or the nearest to it, counts.

        Returns:
            The columns of `trainings` and `bits`.
        """
        if part not in PURPOSES:
            raise unknown_name("part of a text", str(part), PURPOSES)
        table: Frame = self.trainings
        own = table[table["part"] == part]
        if part == "test":
            own = self._counting(own)
        return own.assign(bits=own["loss"] / BITS).reset_index(drop=True)

    def _counting(self, tested: Frame) -> Frame:
        """Of several learning rates of a unit at a size, the trainings at the one nearest to the rule's."""
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
                    "no sweep says which counts; keep each in a store of its own, or give lrs=None, which sweeps"
                )
            wanted = rule.rate(unit, own["d_model"].iloc[0])
            nearest = min(tried, key=lambda lr: abs(math.log(lr / wanted)))
            left_out += own.index[own["lr"] != nearest].tolist()
        return tested.drop(index=left_out)

    def sweeps(self) -> list[tuple[str, str, int, list[float], list[float]]]:
        """Of every unit and size that was swept: the unit, the size, d_model, learning rates and their losses."""
        swept: Frame = self.table("valid")
        groups = swept.groupby(["unit", "size", "d_model"], sort=False)
        return [(*key, own["lr"].tolist(), own["loss"].tolist()) for key, own in groups]

    def rule(self) -> RateRule:
        """How learning rates go from size to size, by the sweeps whose best rate lies between others."""
        swept = [(unit, width, best_rate(*sweep), at_end(*sweep)) for unit, _, width, *sweep in self.sweeps()]
        between = {unit for unit, _, _, end in swept if not end}
        return RateRule.of(row[:3] for row in swept if not row[3] or row[0] not in between)

    def rates(self) -> pd.DataFrame:
        """The best learning rates, those of the rule, those of the trainings that count, and what these cost in loss.

        Returns:
            A row a sweep. `end` is -1 or 1 where the best rate is the smallest or the largest that was swept: `excess`
            is then less than what the rate `used` costs. Where nothing was tested it is that of the rule's rate.
        """
        rule, used, rows = self.rule(), self._used_rates(1), []
        for unit, size, width, *sweep in self.sweeps():
            wanted, lr = rule.rate(unit, width), used.get((unit, width), math.nan)
            cost = excess(wanted if math.isnan(lr) else lr, *sweep)
            rows.append((unit, size, best_rate(*sweep), at_end(*sweep), wanted, lr, cost))
        return pd.DataFrame(rows, columns=["unit", "size", "best", "end", "rule", "used", "excess"])

    def near_rates(self, repeats: int = 1) -> Callable[[str, int], float]:
        """The rates of the rule; where a unit was trained with one near it, that one, so that it is not trained again.

        Args:
            repeats: which regime's trainings.

        Returns:
            A function of unit and d_model.
        """
        rule, used = self.rule(), self._used_rates(repeats)

        def rate(unit: str, d_model: int) -> float:
            wanted = rule.rate(unit, d_model)
            known = used.get((unit, d_model), math.inf)
            return known if max(known / wanted, wanted / known) <= NEAR else wanted

        return rate

    def _used_rates(self, repeats: int) -> dict[tuple[str, int], float]:
        """The learning rate that counts, by unit and d_model."""
        own = self.regime(repeats)
        return dict(zip(zip(own["unit"], own["d_model"], strict=True), own["lr"], strict=True))

    def regime(self, repeats: int) -> pd.DataFrame:
        """The trainings that count of a text that was read so often: what laws are fitted to."""
        table: Frame = self.table()
        own = table[table["repeats"] == repeats]
        return own.assign(diverged=own["diverged"].notna())

    def law(
        self, against: LadderAxis = "parameters", *, repeats: int = 1, draws: int = DRAWS, progress: ProgressLike = None
    ) -> LadderLaws:
        """Whether units differ by an offset or by an exponent, and what each is worth in parameters.

        Args:
            against: "parameters", "flops" or "seconds", those of one training among the ones it was trained with.
            repeats: which regime: how often the text was read.
            draws: of the bootstrap and tests.
            progress: as in `fit_ladder`.

        Returns:
            The laws, with tests, intervals, `worth` and a figure.
        """
        return fit_ladder(self.regime(repeats), against=against, draws=draws, progress=progress)

    def comparisons(self, *, repeats: int = 1) -> LadderComparisons:
        """All pairs of units at each size and over all, paired by seed, with Holm's correction.

        Args:
            repeats: which regime.

        Returns:
            The differences of losses, in nats a token, and which are decided.
        """
        return compare_ladder(read_ladder(self.regime(repeats), least_sizes=1))

    def plot(
        self, path: str | Path | None = None, *, repeats: int = 1, reference: str | None = None, ax: Any = None
    ) -> Figure:
        """Losses against parameters with the laws, and what each unit is worth beside the reference.

        Args:
            path: where to write the figure (.png, .svg or .pdf), if anywhere.
            repeats: which regime.
            reference: the unit that others are held against; by default the first.
            ax: two of matplotlib's axes to draw into.

        Returns:
            The figure; where there is no law, as of fewer than three sizes, one of the mean losses alone.
        """
        try:
            laws = self.law(repeats=repeats)
        except GatelabError:
            own: Frame = self.regime(repeats).dropna(subset=["loss"])
            if ax is not None or own.empty:
                raise
            from gatelab.plotting import saved
            from gatelab.plotting.curves import means_figure

            means = {
                unit: (sizes.index.to_numpy(float), sizes.to_numpy(float))
                for unit, rows in own.groupby("unit", sort=False)
                for sizes in [rows.groupby("parameters")["loss"].mean()]
            }
            figure = means_figure(means, loss_label="test loss, nats a token", title="mean losses; there is no law")
            return saved(figure, path)
        return laws.plot(path, reference=reference, loss="nats a token", ax=ax)

    def plain(self) -> dict[str, Any]:
        """The ladder in JSON's own types; an error where a unit could not be found again by who reads them."""
        for record in self.records:
            run_of(record.run.arguments).recipe.plain()
        runs = [
            {"arguments": r.run.arguments, "metrics": dict(r.metrics), "device": r.device, "time": r.time}
            for r in self.records
        ]
        return {"text": self.text, "facts": dict(self.facts), "rungs": runs}

    @staticmethod
    def from_plain(values: Mapping[str, Any]) -> Ladder:
        """The ladder that `plain` wrote."""
        records = [
            Record(Run(TASK, v["arguments"]), "done", v["metrics"], device=v["device"], time=v["time"])
            for v in values["rungs"]
        ]
        return Ladder(values["text"], tuple(records), values["facts"])

    def save(self, path: str | Path) -> Path:
        """Write the ladder as a JSON record, a line a run.

        Args:
            path: of the file.

        Returns:
            The same.
        """
        values = self.plain()
        runs = ",\n".join(json.dumps(run) for run in values.pop("rungs"))
        return write_whole(path, f'{json.dumps(values)[:-1]}, "rungs": [\n{runs}\n]}}\n')

    @staticmethod
    def read(path: str | Path) -> Ladder:
        """The ladder of a JSON record.

        Args:
            path: of the file.

        Returns:
            The ladder that `save` wrote.
        """
        try:
            return Ladder.from_plain(json.loads(Path(path).read_text()))
        except (OSError, ValueError, KeyError, TypeError) as error:
            message = f"{path} is no record of a ladder ({error}); give a file that Ladder.save wrote"
            raise GatelabError(message) from error

    @staticmethod
    def from_store(store: Store | str | Path, facts: Mapping[str, Any] | None = None) -> Ladder:
        """All runs that a store has, whatever calls they were asked by.

        Args:
            store: the store or its file.
            facts: what else the ladder should say of itself.

        Returns:
            A ladder; runs that failed are left out.
        """
        with opened(store) as database:
            assert database is not None
            records = tuple(database.records(task=TASK, status="done"))
        told = [(record.arguments["recipe"]["data"], record.arguments) for record in records]
        texts = sorted({(name, arguments["text"]) for name, arguments in told})
        tuned = sorted({(name, arguments["valid"]) for name, arguments in told if "valid" in arguments})
        several = tuned if len(texts) == 1 and len(tuned) > 1 else texts
        if len(several) != 1:
            named = ", ".join(f"{name} ({key})" for name, key in several) or "none"
            raise GatelabError(
                f"the store has ladders of {len(several)} texts: {named}; give one with runs of one text, and note "
                "that a file that was changed, or cut into other tokens, is another text"
            )
        check_alike(records)
        return Ladder(Path(texts[0][0]).name, records, dict(facts or {}))

    def fill(self, store: Store | str | Path) -> int:
        """Put all runs into a store: a ladder that was begun elsewhere goes on from its record.

        Args:
            store: the store or its file.

        Returns:
            How many runs were new there.
        """
        self.plain()  # an error where a unit is known to this process alone
        with opened(store) as database:
            assert database is not None
            return database.put_all(self.records)


def check_alike(records: Iterable[Record]) -> None:
    """Refuse runs of one size that were trained in different ways: what they differ by is no matter of units."""
    found: dict[tuple[str, str], set[str]] = {}
    for record in records:
        recipe = run_of(record.arguments).recipe
        for field in fields(recipe):
            if field.name not in ("unit", "size", "lr", "seed", "data"):
                found.setdefault((recipe.size, field.name), set()).add(str(getattr(recipe, field.name)))
    for (size, name), values in found.items():
        if len(values) > 1:
            raise GatelabError(
                f"the store has runs of {size} with {name} {' and '.join(sorted(values))}; give each its own store"
            )
