"""Claims, tables and figures of table 1, figures 7 and 8 again, from their recorded fits: nothing is trained.

`python -m benchmarks.table1_claims`, with `GATELAB_DATA` set, writes into results/scaling what `gatelab reproduce`
would if every fit came out as it is in `STUDY-errors.csv`. Date, device and seconds stay those of the fits, and so do
the sentences on outliers, for which networks would have to be fitted again.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pandas as pd

from gatelab.scaling_laws import Point, Scaling
from gatelab.studies import Request, study
from gatelab.studies.reproduction import write_outcome
from gatelab.studies.scaling.problem_rows import FittedRow, ProblemRow, with_paper_protocol

FOLDER = Path(__file__).resolve().parents[1] / "results/scaling"
TRAINED_ON = {"split": "training part", "paper": "all rows"}
PLACES = ("gatelab.studies.scaling.table1", "gatelab.studies.scaling.many_inputs")


def recorded_row(table: pd.DataFrame, row: ProblemRow) -> FittedRow:
    """A row of table 1 out of its recorded fits."""
    curves: Any = {}
    for protocol in row.fitted_protocols:
        mine = table[(table["problem"] == row.name) & (table["trained_on"] == TRAINED_ON[protocol])]
        fits = pd.DataFrame(mine).drop(columns=["problem", "trained_on"]).to_dict("records")
        points = tuple(Point(**{str(name): value for name, value in fit.items()}) for fit in fits)
        curves[protocol] = Scaling(row.problem(protocol).name, points)
    return FittedRow(row, with_paper_protocol(row, curves))


def rebuild(stem: str) -> None:
    """Write the outcome of one study anew."""
    fits = FOLDER / f"{stem}-errors.csv"
    text, before = fits.read_text(encoding="utf-8"), json.loads((FOLDER / f"{stem}.json").read_text(encoding="utf-8"))
    table = pd.read_csv(fits, dtype={"flag": str}).fillna({"flag": ""})
    said = {note.partition(". ")[0]: note.partition(". ")[2] for note in before["notes"] if "The widest gap" in note}
    one = study(f"scaling/{stem}")
    with patch(f"{PLACES[0]}.outliers", lambda fitted: SimpleNamespace(sentence=said[fitted.row.label])):
        for place in PLACES:
            patch(f"{place}.fit_row", lambda _request, row, _tick: recorded_row(table, row)).start()
        outcome = one.run(Request(jobs=1))
        patch.stopall()
    write_outcome(one, outcome, FOLDER, quick=False, seconds=before["seconds"])
    fits.write_text(text, encoding="utf-8")
    path = FOLDER / f"{stem}.json"
    after = json.loads(path.read_text(encoding="utf-8"))
    after |= {name: before[name] for name in ("date", "device", "seconds", "fingerprint", "gatelab")}
    path.write_text(json.dumps(after, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    for stem in ("table1", "fig7", "fig8"):
        rebuild(stem)
