"""Models with fewer neurons per block, by published methods and ours: from the record of `benchmarks/shrinking.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from gatelab.plotting.facets import Facets, Table, Tables
from gatelab.statistics import Interval, t_interval
from gatelab.studies.claims import Claim
from gatelab.studies.definition import Request, only
from gatelab.studies.engine import Study, interval_at, interval_columns
from gatelab.studies.records import read_record

RECORDS = ("anatomy/shrink-stories.json", "anatomy/shrink.json")
PUBLISHED = ("magnitude", "wanda", "flap")
COMBINED = "surgeon"  # our combination of ZipLM's order and FASP's refit
UNITS = ("ours as relu2", "ours as gqu", "ours as relu2 + distilled", "ours as gqu + distilled")
ORDER = (
    *PUBLISHED, COMBINED, "ours", "ours balanced", "surgeon + distilled", "ours + distilled", "ours + 4M own text",
    "surgeon + 12M own text", "ours + 12M own text", *UNITS,
)  # fmt: skip
DRAWN = ("wanda", "flap", "surgeon", "ours", "ours balanced", "surgeon + 12M own text", "ours + 12M own text")

STUDY = Study(
    "models/shrink",
    "Replacing blocks by smaller ones",
    beyond=True,
    figure=Facets(
        x="removed", y="lost", hue="method", table="losses", where={"text": "larger", "method": list(DRAWN)},
        xlabel="neurons removed, %", ylabel="log perplexity lost, nats per token",
        title="SmolLM2-135M-Instruct (4-bit weights) with fewer neurons",
    ),
)  # fmt: skip


@STUDY.tables
def losses(request: Request) -> Tables:
    """The loss of each smaller model, and differences between ours and surgeon over the same windows."""
    cells = {}
    for name in RECORDS:
        cells |= read_record(name, "python -m benchmarks.shrinking")["cells"]
    rows = []
    for key, cell in sorted(cells.items(), key=lambda item: ORDER.index(item[0].split(":")[2])):
        model, keep, method = key.split(":")
        row = {"model": model, "keep": float(keep), "removed": 100 * (1 - float(keep)), "method": method}
        # Nats per token; of a model that predicts no token, 1 minus the cosine of sentence embeddings.
        lost = 1 - cell["sentences"] if cell["measure"] == "cosine" else cell["after"] - cell["before"]
        rows.append(row | {"text": "test", "lost": lost})
        if "wide" in cell:
            ends = {f"lost_{end}": cell["wide"][end] for end in ("low", "high")}
            rows.append(row | {"text": "larger", "lost": cell["wide"]["value"], **ends})
    return {"losses": pd.DataFrame(rows), "paired": pd.DataFrame(paired(cells))}


def paired(cells: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Ours minus surgeon, window by window, before and after a distillation, where the record has the windows."""
    for key in cells:
        other = key.replace(":ours", f":{COMBINED}")
        for text, ours, theirs in (
            ("test", cells[key], cells.get(other, {})),
            ("larger", cells[key].get("wide", {}), cells.get(other, {}).get("wide", {})),
        ):
            if other != key and "windows" in ours and "windows" in theirs:
                gap = t_interval(np.subtract(ours["windows"], theirs["windows"]))
                model, keep, method = key.split(":")
                row = {"model": model, "keep": float(keep), "method": method, "text": text}
                yield row | {"windows": len(ours["windows"]), **interval_columns("minus_surgeon", gap)}


def loss(table: Table, keep: float, method: str) -> Interval:
    """The loss of SmolLM2 on the larger text."""
    return interval_at(only(table, text="larger", keep=keep, method=method).iloc[0], "lost")


@STUDY.claims
def claims(tables: Tables) -> Iterator[Claim]:
    table = tables["losses"]
    for keep in (0.8, 0.6):
        best = min(PUBLISHED[1:], key=lambda method: loss(table, keep, method).value)
        for method in ("surgeon", "ours", "surgeon + 12M own text", "ours + 12M own text"):
            what = f"loss of SmolLM2-135M-Instruct by {method}, keep {keep}"
            support = {f"best published, {best}": loss(table, keep, best)}
            yield Claim.of(what, loss(table, keep, method), unit="nats per token", support=support)
    for row in tables["paired"].to_dict("records"):
        what = f"{row['method']} minus surgeon, {row['model']}, keep {row['keep']}, {row['text']} text"
        support = {"windows": row["windows"]}
        yield Claim.of(what, interval_at(row, "minus_surgeon"), unit="nats per token", support=support)
