"""`gatelab ladder`: units in a language model, at many sizes, each at its own best learning rate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gatelab.cli import interrupts, output, reading
from gatelab.cli.options import Json, complete_unit, grouped, unit_option
from gatelab.cli.output import check_file
from gatelab.errors import GatelabError, unknown_name
from gatelab.feedforward.named import CATALOGUE
from gatelab.files import PICTURES, write_whole

if TYPE_CHECKING:
    from gatelab.scaling_laws import LadderLaws
    from gatelab.train import Ladder

Frame = Any  # a table whose columns may be used without saying what they hold
LADDER = """Examples: gatelab ladder --quick

gatelab ladder gelu relu2 swiglu --text novel.txt --sizes 0.4M,1.3M,3.2M --store runs.db --plot ladder.png

gatelab ladder --text enwik8 --repeats 1,20 --store runs.db --dry-run

gatelab ladder --record results/ladder/enwik8.json --plot ladder.png"""


@dataclass(frozen=True)
class LadderOptions:
    """What is trained, and how."""

    text: Annotated[
        str | None,
        typer.Option(metavar="NAME|FILE", help="enwik8, tinyshakespeare or a file.", show_default="enwik8"),
    ] = None
    sizes: Annotated[
        str | None, typer.Option(help="Sizes with commas, smallest first.", show_default="0.4M to 26M")
    ] = None
    seeds: Annotated[int, typer.Option(min=1, help="Trainings of each unit and size.")] = 3
    repeats: Annotated[str, typer.Option(metavar="N[,N]", help="How often the text is read.")] = "1"
    lr: Annotated[float | None, typer.Option(help="One learning rate for all.", show_default="tuned by unit")] = None
    model: Annotated[str, typer.Option(help="decoder or gpt2.")] = "decoder"
    tokenizer: Annotated[str, typer.Option(help="bytes, gpt2 or trained:N.")] = "bytes"
    optimiser: Annotated[str, typer.Option(help="adamw, muon or sgd.")] = "adamw"
    steps: Annotated[int | None, typer.Option(min=1, help="Updates.", show_default="one pass of the text")] = None
    batch: Annotated[int | None, typer.Option(min=1, help="Windows of text.", show_default="16")] = None
    quick: Annotated[bool, typer.Option("--quick", help="The whole flow, small, in minutes on two cores.")] = False

    def keywords(self, names: Sequence[str]) -> dict[str, Any]:
        """The arguments of `ladder` but those of the sweep."""
        from gatelab.train.ladder_plans import LADDER_SIZES, QUICK, UNITS, quick_text

        values: dict[str, Any] = {"units": UNITS, "data": "enwik8", "sizes": LADDER_SIZES}
        if self.quick:
            values |= {**QUICK, "data": quick_text()}
        asked = {"units": list(names), "data": self.text, "steps": self.steps, "batch": self.batch}
        if self.sizes:
            asked["sizes"] = [size.strip() for size in self.sizes.split(",")]
        values |= {name: value for name, value in asked.items() if value}
        values |= {"seeds": self.seeds, "model": self.model, "tokenizer": self.tokenizer, "optimiser": self.optimiser}
        return {**values, "repeats": read_repeats(self.repeats)}

    def rates(self, units: Sequence[Any]) -> dict[str, float] | None:
        """The learning rate of every unit, or None where they are to be tuned."""
        from gatelab.train.ladder_plans import rates_by_name

        if self.lr is None:
            return None
        return rates_by_name(dict.fromkeys(units, self.lr), ())


@dataclass(frozen=True)
class RunOptions:
    """Who trains, and where what was trained is kept."""

    store: Annotated[Path | None, typer.Option(help="Keep every run here; the same command goes on.")] = None
    backend: Annotated[str, typer.Option(help="serial, processes or ray.")] = "serial"
    jobs: Annotated[int | None, typer.Option(min=1, help="Runs at once.", show_default="one a core")] = None
    device: Annotated[str | None, typer.Option(help="cpu or cuda.", show_default="cuda if there is one")] = None
    max_hours: Annotated[float | None, typer.Option(help="Begin nothing new after that.", show_default="no limit")] = (
        None
    )


def read_repeats(text: str) -> tuple[int, ...]:
    """`1,20` as numbers.

    >>> read_repeats("1, 20")
    (1, 20)
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise GatelabError(f"--repeats is {text!r}; give whole numbers with commas, such as 1,20")
    return tuple(int(part) for part in parts)


@grouped
def ladder_command(
    *,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="UNIT", help="Units.", show_default=False, autocompletion=complete_unit),
    ] = None,
    units: Annotated[list[str] | None, unit_option("gelu,relu2,reglu,geglu,swiglu,gqu")] = None,
    what: LadderOptions,
    how: RunOptions,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what it would take; train nothing.")] = False,
    record: Annotated[Path | None, typer.Option(metavar="FILE", help="Read what --save wrote; train nothing.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Write the figure, .png, .svg or .pdf.")] = None,
    csv: Annotated[Path | None, typer.Option(help="Write every training, .csv.")] = None,
    save: Annotated[Path | None, typer.Option(help="Write the record, .json.")] = None,
    as_json: Json = False,
) -> None:
    """Train a language model with every unit at every size, and say what a unit is worth."""
    for path, suffixes in ((plot, PICTURES), (csv, (".csv",)), (save, (".json",))):
        check_file(path, suffixes)
    names, word = reading.units(words, units)
    if word is not None:
        raise unknown_name("unit", word, CATALOGUE)
    from gatelab.sweep.backends import check_hours
    from gatelab.train import Ladder, ladder

    if record is not None:
        refuse_training_options(names, what, how, dry_run)
        result = Ladder.read(record)
    else:
        values = what.keywords(names)
        lrs = what.rates(values["units"])
        if dry_run:
            check_hours(how.max_hours)
            _print_plan(values, lrs, as_json)
            return

        def state() -> str | None:
            if how.store is None or not how.store.exists():
                return None
            return f"the runs that ended are in {how.store}: the same command goes on from there"

        with interrupts.keeping(state), output.progress("training the ladder") as report:
            result = ladder(lrs=lrs, progress=report, **values, **vars(how))
    if csv:
        write_whole(csv, result.table().to_csv(index=False).encode())
    if save:
        result.save(save)
    laws = laws_of(result)
    tested: Frame = result.table()
    ended = tested.dropna(subset=["loss"])["repeats"]
    if plot and ended.empty:
        output.note(f"{plot} was not written: no training has a loss")
        plot = None
    elif plot and isinstance(laws, str):
        result.plot(plot, repeats=int(ended.min()))
    elif plot and not isinstance(laws, str):
        laws.plot(plot)
    files = output.asked_for(plot, csv, save)
    if as_json:
        document = {"text": result.text, "facts": dict(result.facts), "points": training_rows(result)}
        if isinstance(laws, str):
            document["no_law"] = laws
        else:
            document["law"] = laws.plain()
        output.document({**document, "files": files})
        return
    _print_ladder(result, laws)
    output.say_written(*files)


def refuse_training_options(names: Sequence[str], what: LadderOptions, how: RunOptions, dry_run: bool) -> None:
    """--record trains nothing: units, and whatever says how to train, would be ignored."""
    given = [f"the units {', '.join(names)}"] if names else []
    for options in (what, how):
        given += [f"--{f.name.replace('_', '-')}" for f in fields(options) if getattr(options, f.name) != f.default]
    given += ["--dry-run"] if dry_run else []
    if given:
        raise GatelabError(f"--record reads what was trained and trains nothing; leave out {', '.join(given)}")


def laws_of(ladder: Ladder) -> LadderLaws | str:
    """The laws in parameters of the first regime, or why there are none."""
    table: Frame = ladder.trainings
    repeats = table[table["part"] == "test"]["repeats"]
    if repeats.empty:
        return "nothing was trained yet but sweeps of learning rates"
    try:
        with output.progress("laws of the ladder") as report:
            return ladder.law(repeats=int(repeats.min()), progress=report)
    except GatelabError as error:
        return str(error)


def training_rows(ladder: Ladder) -> list[dict[str, Any]]:
    """All trainings, each with whether it counts; null for what is not a number."""
    table: Frame = ladder.trainings
    keys = ["part", "unit", "size", "lr", "seed", "repeats", "tokens"]
    counting: Frame = ladder.table().set_index(keys).index
    rows = table.assign(counts=table.set_index(keys).index.isin(counting), diverged=table["diverged"].astype("Int64"))
    return rows.astype(object).where(rows.notna(), None).to_dict("records")


def _print_plan(values: dict[str, Any], lrs: dict[str, float] | None, as_json: bool) -> None:
    from gatelab.train.ladder_plans import gpu_hours, plan_ladder

    parts = ("units", "data", "sizes", "seeds", "repeats")
    options = {name: value for name, value in values.items() if name not in parts}
    units, data, sizes, seeds, repeats = (values[name] for name in parts)
    runs = plan_ladder(units, data, sizes, seeds, repeats, options).expected(lrs)
    facts = {
        "runs": len(runs),
        "trainings": sum(len(run.members) for run in runs),
        "flops": sum(run.flops for run in runs),
        "h200_hours": gpu_hours(runs),
    }
    if as_json:
        output.document(facts)
        return
    output.pairs(
        [
            ("runs", str(facts["runs"])),
            ("trainings", str(facts["trainings"])),
            ("operations", f"{facts['flops']:.3g}"),
            ("hours on an H200", f"{facts['h200_hours']:.3g}"),
        ]
    )
    if lrs is None:
        output.say("", "sweeps of learning rates that have to go on beyond their ends come on top")


def _print_ladder(ladder: Ladder, laws: LadderLaws | str) -> None:
    table: Frame = ladder.table()
    rows = []
    for key, own in table.groupby(["repeats", "size", "unit"], sort=False):
        loss = float(own["loss"].mean())  # of the trainings that did not diverge
        numbers = (output.number(loss, ".4f"), output.number(loss / math.log(2), ".4f"))
        rate, diverged = f"{own['lr'].iloc[0]:.3g}", str(int(own["diverged"].notna().sum()))
        rows.append([*map(str, key), rate, *numbers, str(len(own)), diverged])
    columns = ("repeats", "size", "unit", "lr", "loss", "bits", "seeds", "diverged")
    output.table(columns, rows, right=(0, 3, 4, 5, 6, 7))
    if isinstance(laws, str):
        output.say("", f"no law: {laws}")
        return
    output.say("", laws.sentence)
    reference = laws.losses.units[0]
    output.say(*(laws.worth(unit, reference).sentence for unit in laws.losses.units[1:]))
