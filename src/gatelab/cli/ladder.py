"""`gatelab ladder`: units in a language model at many sizes, each at its best learning rate."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from gatelab.cli import output, reading
from gatelab.cli.options import Device, DryRun, Jobs, Plot, UnitsAlone, option, out_option, resuming, unit_option
from gatelab.errors import GatelabError
from gatelab.plain import to_plain

if TYPE_CHECKING:
    from gatelab.scaling_laws import LadderLaw
    from gatelab.train import Ladder

Frame = Any  # a data frame
LADDER = """Examples: gatelab ladder --quick
gatelab ladder gelu relu2 swiglu --text novel.txt --sizes 0.4M,1.3M,3.2M --store runs.db --plot ladder.png
gatelab ladder --text enwik8 --repeats 1,20 --store runs.db --dry-run
gatelab ladder --record results/ladder/enwik8.json --plot ladder.png
gatelab ladder --record results/ladder/enwik8.json --power --sizes 0.1M,0.4M,3.2M,26M --seeds 6"""


@dataclass(frozen=True)
class LadderOptions:
    """The trainings."""

    text: Annotated[str | None, option("enwik8, tinyshakespeare or a file.", default="enwik8")] = None
    sizes: Annotated[str | None, option("Sizes separated by commas, smallest first.", default="0.4M to 26M")] = None
    seeds: Annotated[int, option("Trainings per unit and size.", min=1)] = 3
    repeats: Annotated[str, option("Epochs of the text.", metavar="N[,N]")] = "1"
    lr: Annotated[float | None, option("One learning rate for all.", default="tuned by unit")] = None
    model: Annotated[str, option("decoder or gpt2.")] = "decoder"
    tokenizer: Annotated[str, option("bytes or gpt2.")] = "bytes"
    optimizer: Annotated[str, option("adamw, muon or sgd.")] = "adamw"
    steps: Annotated[int | None, option("Updates.", min=1, default="one pass of the text")] = None
    batch: Annotated[int | None, option("Windows of text.", min=1, default="16")] = None
    quick: Annotated[bool, option("A small complete run, minutes on two cores.", "--quick")] = False

    def keywords(self, names: Sequence[str]) -> dict[str, Any]:
        """The arguments of `ladder` except those of the sweep."""
        from gatelab.train.ladder_plans import LADDER_SIZES, QUICK, UNITS, quick_text

        values: dict[str, Any] = {"units": UNITS, "data": "enwik8", "sizes": LADDER_SIZES}
        if self.quick:
            values |= {**QUICK, "data": quick_text()}
        given = {name: getattr(self, name) for name in ("steps", "batch", "seeds", "model", "tokenizer", "optimizer")}
        given |= {"units": list(names), "data": self.text, "sizes": reading.column_names(self.sizes)}
        values |= {name: value for name, value in given.items() if value}
        if not (repeats := reading.whole_numbers(self.repeats)):
            raise GatelabError(f"--repeats is {self.repeats!r}; give whole numbers with commas, such as 1,20")
        return {**values, "repeats": repeats}


@dataclass(frozen=True)
class RunOptions:
    """Where the trainings run and where they are kept."""

    store: Annotated[Path | None, option("Keep every run here; the same command resumes.", metavar="FILE")] = None
    backend: Annotated[str, option("serial, processes or ray.")] = "serial"
    jobs: Jobs = None
    device: Device = "auto"
    max_hours: Annotated[float | None, option("Start no new run after this time.", default="no limit")] = None

    def keywords(self) -> dict[str, Any]:
        """The same as arguments of `ladder`."""
        return {**vars(self), "device": {"auto": None}.get(self.device, self.device)}


def ladder_command(
    *,
    words: UnitsAlone = None,
    unit: Annotated[list[str] | None, unit_option("gelu,relu2,reglu,geglu,swiglu,gqu")] = None,
    training: LadderOptions,
    run: RunOptions,
    dry_run: DryRun = False,
    record: Annotated[Path | None, option("Read a record that --out wrote; train nothing.", metavar="FILE")] = None,
    power: Annotated[bool, option("Power of tests with --sizes and --seeds, by --record.", "--power")] = False,
    plot: Plot = None,
    out: Annotated[list[Path] | None, out_option("Write the record, .json, or a table, .csv.", ".json", ".csv")] = None,
) -> None:
    """Train a language model with every unit at every size, and compare the units."""
    names = reading.units_alone(words, unit)
    from gatelab.sweep.backends import seconds_of
    from gatelab.train import Ladder, ladder
    from gatelab.train.ladder_plans import rates_by_name

    if power:
        emit_power(record, training)
        return
    if record is not None:
        refuse_training_options(names, training, run, dry_run)
        result = Ladder.read(record)
    else:
        values, lrs = training.keywords(names), None
        if training.lr is not None:
            lrs = rates_by_name(dict.fromkeys(values["units"], training.lr), ())
        if dry_run:
            seconds_of(run.max_hours)  # refuses negative hours
            emit_plan(values, lrs)
            return
        with resuming(run.store), output.progress("trainings") as report:
            result = ladder(lrs=lrs, progress=report, **values, **run.keywords())
    output.write(result, *(out or ()))
    law = law_of(result)
    tested: Frame = result.table()
    ended = tested.dropna(subset=["loss"])["repeats"]
    if plot and ended.empty:
        output.note(f"{plot} was not written: no training has a loss")
        plot = None
    document = {"text": result.text, "facts": dict(result.facts), "points": training_rows(result)}
    document[("law", "no_law")[isinstance(law, str)]] = to_plain(law)
    if plot:
        result.plot(plot, repeats=int(ended.min()))
    output.emit(document, *parts_of(result, law), files=(plot, *(out or ())))


def emit_power(record: Path | None, training: LadderOptions) -> None:
    """The power of the tests of a design, if the laws of a record are true."""
    from gatelab.scaling_laws import ladder_power
    from gatelab.train import Ladder

    if record is None:
        raise GatelabError("--power takes law and seed noise from a record; give --record FILE, which --out wrote")
    try:
        sizes = [1e6 * float(size.strip().removesuffix("M")) for size in (training.sizes or "").split(",") if size]
    except ValueError:
        raise GatelabError(f"--sizes is {training.sizes!r}; give sizes with commas, such as 0.4M,3.2M") from None
    with output.progress("simulated tests") as report:
        table = ladder_power(Ladder.read(record).regime(1), sizes=sizes or None, seeds=training.seeds, progress=report)
    shown = output.table(table, {"p": ".2g", "power": ".2f", "power_f": ".2f"})
    note = "true: what differs between units; p: of the record; power: variances known; power_f: their scale estimated"
    output.emit({"power": table.to_dict("records")}, shown, "", note)


def refuse_training_options(names: Sequence[str], training: LadderOptions, run: RunOptions, dry_run: bool) -> None:
    """Refuse options of trainings with --record, which would ignore them."""
    given = [f"the units {', '.join(names)}"] * bool(names) + ["--dry-run"] * dry_run
    for options in (training, run):
        given += [f"--{f.name.replace('_', '-')}" for f in fields(options) if getattr(options, f.name) != f.default]
    if given:
        raise GatelabError(f"--record reads finished trainings; leave out {', '.join(given)}")


def law_of(ladder: Ladder) -> LadderLaw | str:
    """The law of the first regime, or the reason if there is none."""
    repeats: Frame = ladder.trainings.query("part == 'test'")["repeats"]
    if repeats.empty:
        return "only sweeps of learning rates have been trained"
    try:
        with output.progress("law of the ladder") as report:
            return ladder.law(repeats=int(repeats.min()), progress=report)
    except GatelabError as error:
        return str(error)


def training_rows(ladder: Ladder) -> list[dict[str, Any]]:
    """All trainings, with a column for those that count; null in place of NaN."""
    table: Frame = ladder.trainings
    keys = ["part", "unit", "size", "lr", "seed", "repeats", "tokens"]
    counting: Frame = ladder.table().set_index(keys).index
    rows = table.assign(counts=table.set_index(keys).index.isin(counting), diverged=table["diverged"].astype("Int64"))
    return rows.astype(object).where(rows.notna(), None).to_dict("records")


def emit_plan(values: dict[str, Any], lrs: dict[str, float] | None) -> None:
    """The size of the trainings, with --dry-run."""
    from gatelab.train.ladder_plans import plan_ladder

    options = dict(values)
    units, data, sizes, seeds, repeats = (options.pop(n) for n in ("units", "data", "sizes", "seeds", "repeats"))
    runs = plan_ladder(units, data, sizes, seeds, repeats, options).expected(lrs)
    facts = {"runs": len(runs), "trainings": sum(len(r.members) for r in runs), "flops": sum(r.flops for r in runs)}
    shown: list[output.Part] = [output.pairs(facts.items())]
    if lrs is None:
        shown += ["", "sweeps of learning rates that continue beyond their ends are not included"]
    output.emit(facts, *shown)


def parts_of(ladder: Ladder, law: LadderLaw | str) -> Iterator[output.Part]:
    """The mean loss of every unit and size, the law, and factors of parameters."""
    table: Frame = ladder.table()
    grouped = table.groupby(["repeats", "size", "unit"], sort=False)
    means = grouped.agg(  # NaN of diverged trainings is skipped
        lr=("lr", "first"), loss=("loss", "mean"), seeds=("lr", "size"), diverged=("diverged", "count")
    )
    means.insert(2, "bits", means["loss"] / math.log(2))
    yield output.table(means.reset_index(), {"lr": ".3g", "loss": ".4f", "bits": ".4f"})
    yield ""
    if isinstance(law, str):
        yield f"no law: {law}"
        return
    yield f"L = E + A P^-a with E {law.E:.3f} and a {law.exponent:.3f}"
    reference, *others = law.losses.units
    for unit in others:
        yield f"{unit} is worth {law.factor(unit, reference):.2f} times the parameters of {reference}"
