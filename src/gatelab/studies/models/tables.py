"""The estimators on tables of measured data, next to boosting and trees: from the record of `benchmarks/tables.py`."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
from matplotlib.figure import Figure

from gatelab.plotting.facets import Table, Tables
from gatelab.plotting.theme import looks, style
from gatelab.studies.claims import Claim
from gatelab.studies.definition import Request, only
from gatelab.studies.engine import Study, geometric_mean
from gatelab.studies.records import read_record

ERRORS = {"regressors": "rmse", "classifiers": "log_loss"}
METHODS = {
    "gated": "ours", "boosting": "HistGradientBoosting", "lightgbm": "LightGBM", "forest": "random forest",
    "extra": "extra trees",
}  # fmt: skip
CLOSE = 1.02  # of the least error of a set
LARGEST = 5  # ratio in the figure


def figure(tables: Tables) -> Figure:
    shapes = looks(METHODS.values())
    with style():
        drawing = Figure(figsize=(10, 6.6), layout="constrained")
        panels = drawing.subplots(1, 2)
        for axes, name in zip(panels, ERRORS, strict=True):
            ratios = tables[name].iloc[::-1]
            for method, label in METHODS.items():
                shape = shapes[label]
                x = ratios[method].clip(upper=LARGEST)
                axes.plot(x, range(len(ratios)), shape.marker, color=shape.color, label=label, clip_on=False)
            axes.set_yticks(range(len(ratios)), ratios["set"].where(~ratios["tuned"], ratios["set"] + " *"))
            axes.set(xscale="log", xlim=(0.95, LARGEST), xlabel="error over the least of the set", title=name)
            axes.set_xticks([1, 1.5, 2, 3, LARGEST], ["1", "1.5", "2", "3", f"{LARGEST} or more"])
            axes.minorticks_off()
        handles, labels = panels[0].get_legend_handles_labels()
        drawing.legend(handles, labels, loc="outside lower center", ncols=5)
    return drawing


STUDY = Study("models/tables", "Gated estimators on tables, next to boosting and trees", beyond=True, figure=figure)


@STUDY.tables
def ratios(request: Request) -> Tables:
    """Errors over the least of each set, and medians over sets of time and memory by method."""
    tables: dict[str, Table] = {}
    costs = []
    for name, error in ERRORS.items():
        record = read_record(f"tables/{name}.json", f"python -m benchmarks.tables {name}", "hours")
        entries: Table = pd.DataFrame(record["entries"]).dropna(subset=error)
        for method in ("gated", "gated-1"):  # of ours the fits by the latest code alone
            own = entries[entries["method"] == method].sort_values("ended")
            entries = entries[(entries["method"] != method) | (entries["version"] == own["version"].iloc[-1])]
        parts = entries.groupby(["set", "method"])[error].agg(["mean", "count"])
        errors = parts.loc[parts["count"] == parts["count"].max(), "mean"].unstack().dropna(subset=["gated"])
        compared = errors.drop(columns="gated-1")
        errors = errors[compared.notna().sum(axis=1) > 1]
        least = compared.loc[errors.index].min(axis=1)
        table = errors.div(least, axis=0).sort_values("gated", kind="stable").reset_index()
        table.insert(1, "tuned", table["set"].isin(record["tuned"]))
        table.insert(2, "methods", table[[c for c in compared.columns if c in table]].notna().sum(axis=1))
        tables[name] = table[["set", "tuned", "methods", *METHODS, "gated-1"]]
        own = entries[entries["set"].isin(table.loc[~table["tuned"], "set"])]
        by_set = own.groupby(["method", "set"])[[c for c in ("cpu_s", "peak_mib", "coverage") if c in own]].mean()
        costs.append(by_set.groupby("method").median().loc[["gated", "gated-1", "boosting"]].assign(task=name))
    return {**tables, "costs": pd.concat(costs).reset_index()}


@STUDY.claims
def claims(tables: Tables) -> Iterator[Claim]:
    for name in ERRORS:
        table = tables[name][~tables[name]["tuned"]].set_index("set")
        boosting = table["gated"] / table[["boosting", "lightgbm"]].min(axis=1)
        extra = (table["gated"] / table["extra"]).sort_values(ascending=False, kind="stable")
        lost = [f"{where} {ratio:.2f}" for where, ratio in extra[extra > 1].items()]
        cpu = only(tables["costs"], task=name).set_index("method")["cpu_s"]
        support = {"sets": len(table), "largest": float(boosting.max()), "where": str(boosting.idxmax())}
        what = f"error over the better boosting's, geometric mean over sets, {name}"
        yield Claim.of(what, geometric_mean(boosting), support=support)
        near = int((table["gated"] <= CLOSE).sum())
        yield Claim(f"sets on which ours is within 2 % of the least error, {name}", near, support={"sets": len(table)})
        what = f"sets on which extra trees have a smaller error, {name}"
        yield Claim(what, len(lost), support={"ours over theirs": lost})
        what = f"error of one member instead of eight over that of eight, {name}"
        yield Claim.of(what, geometric_mean((table["gated-1"] / table["gated"]).dropna()))
        support = {"boosting": cpu["boosting"], "one member": cpu["gated-1"]}
        yield Claim(f"CPU time of a fit, median over sets, {name}", float(cpu["gated"]), unit="s", support=support)
