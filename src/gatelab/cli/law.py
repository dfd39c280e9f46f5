"""`gatelab law`: the law in parameters and data from a table of runs."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Annotated

import typer

from gatelab.cli import show
from gatelab.cli.lists import Json
from gatelab.cli.write import check_file
from gatelab.errors import GatelabError, unknown_name
from gatelab.files import PICTURES

LAW = """Examples: gatelab law runs.csv --plot law.png

gatelab law runs.csv --p-column params --d-column tokens --l-column loss"""

Columns = tuple[str, str, str]


def law(
    table: Annotated[Path, typer.Argument(help="CSV with a header and a row a run.")],
    p_column: Annotated[str, typer.Option(help="Name of the column of parameters.")] = "P",
    d_column: Annotated[str, typer.Option(help="Name of the column of data.")] = "D",
    l_column: Annotated[str, typer.Option(help="Name of the column of losses.")] = "L",
    delta: Annotated[float, typer.Option(help="Errors of log L beyond it are outliers.")] = 1e-3,
    bootstrap: Annotated[int, typer.Option(min=0, help="Draws for the intervals; 0 for none.")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="The seed of the draws.")] = 0,
    plot: Annotated[Path | None, typer.Option(help="Write the figure, .png, .svg or .pdf.")] = None,
    as_json: Json = False,
) -> None:
    """Fit L = E + A/P^a + B/D^b to the losses of many runs."""
    check_file(plot, PICTURES)
    columns = read_columns(table, (p_column, d_column, l_column))
    from gatelab.scaling import fit_law

    with show.progress("bootstrap") as report:
        try:
            found = fit_law(*columns, delta=delta, bootstrap=bootstrap, seed=seed, progress=report)
        except GatelabError as error:
            raise GatelabError(f"{table}: {error}") from error
    if plot:
        found.plot(plot)
    rows = found.table().to_dict("records")
    if as_json:
        facts = {"points": found.points, "rmse_of_log": found.rmse, "notes": found.notes, "file": plot}
        show.document({"law": str(found), "constants": rows, **facts})
        return
    show.say(f"{found}, from {found.points} runs in {table}", "")
    level = f"{found.level:.0%} interval"
    show.table(
        ("", "value", level),
        [(row["constant"], show.number(row["value"], ".4g"), _ends(row["low"], row["high"])) for row in rows],
        right=(1,),
    )
    show.say("", f"RMSE of log L: {found.rmse:.2g}", *found.notes)
    if plot:
        show.say(f"wrote {plot}", wrap=False)


def _ends(low: float, high: float) -> str:
    return "-" if low != low else f"[{low:.4g}, {high:.4g}]"


def read_columns(path: Path, names: Columns) -> list[list[float]]:
    """Three columns of a CSV file by their names."""
    if not path.is_file():
        raise GatelabError(f"there is no file {path}; give a CSV file with columns {', '.join(names)}")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, skipinitialspace=True)
            lines = [(reader.line_num, [cell.strip() for cell in row]) for row in reader if any(row)]
    except (UnicodeDecodeError, csv.Error):
        raise GatelabError(f"{path} is not a text file; give a CSV file with columns {', '.join(names)}") from None
    if not lines:
        raise GatelabError(f"{path} is empty; give a CSV file with columns {', '.join(names)}")
    header = lines[0][1]
    for name in names:
        if name not in header:
            raise GatelabError(f"{path}: {unknown_name('column', name, header)}")
    places = [header.index(name) for name in names]
    rows = [[_number(path, line, cells, place) for place in places] for line, cells in lines[1:]]
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[], [], []]


def _number(path: Path, line: int, cells: list[str], place: int) -> float:
    try:
        return float(cells[place])
    except (IndexError, ValueError):
        said = repr(cells[place]) if place < len(cells) else "nothing"
        raise GatelabError(f"{path} line {line}: {said} is not a number; mend or remove the line") from None
