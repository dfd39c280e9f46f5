"""Section 4.3: learned maps in sixteen dimensions, where the paper's loss levels at 2.013; ours, and the floor."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from gatelab.linearize import floor_curve
from gatelab.linearize.learned import build, population_rmse
from gatelab.plotting.floor import FloorPanel, Method, floor_figure
from gatelab.studies.study import Claim, Outcome, Request, Study
from gatelab.units import activation

PAPER_LOSS = 2.013
D = 16


def run(request: Request) -> Outcome:
    gate = activation("gelu")
    ms = (17, 64) if request.quick else (1, 17, 64, 152, 256)
    steps = 10 if request.quick else 100
    epochs = 5 if request.quick else 125  # of 16 steps: the paper's 2000
    rows: list[dict] = []
    for recipe, each in (("fresh", {"steps": steps}), ("paper", {"epochs": epochs})):
        for m in ms:
            maps = build(gate, D, m=m, recipe=recipe, **each)  # type: ignore[arg-type]
            rmse = population_rmse(maps, gate, seed=9000, rows=1000 if request.quick else 2000)
            rows.append({"recipe": recipe, "m": m, "rmse": rmse, "mse": rmse**2})
            if request.progress is not None:
                request.progress(len(rows), 2 * len(ms))
    table = pd.DataFrame(rows)
    table["floor"] = floor_curve("gelu", D, table["m"])
    return Outcome(_figure(table, max(ms)), {"errors": table}, _claims(table), _notes())


def _claims(table: pd.DataFrame) -> tuple[Claim, ...]:
    paper = math.sqrt(PAPER_LOSS)
    grid = list(range(300))
    floors = floor_curve("gelu", D, grid)
    beaten = next(m for m, value in zip(grid, floors, strict=True) if value <= paper)
    claims = [
        Claim(
            "the loss at which training levels",
            f"{PAPER_LOSS} (RMSE {paper:.3f})",
            f"the floor is below it from m = {beaten} on",
            "new",
            f"Predicting 0 leaves {floors[0] ** 2:.2f}, the best single feature {floors[1] ** 2:.2f}; "
            "the paper does not say m.",
        )
    ]
    for recipe, name in (("fresh", "new data, last layers solved for"), ("paper", "the recipe of section 4.2")):
        part = table[table["recipe"] == recipe]
        last = part.iloc[-1]
        claims.append(
            Claim(
                f"loss with m = {last['m']:.0f}, {name}",
                f"{PAPER_LOSS}",
                f"{last['mse']:.3f} (RMSE {last['rmse']:.3f})",
                "exceeded" if last["mse"] < PAPER_LOSS else "differs",
                f"The floor is RMSE {last['floor']:.3f}, a loss of {last['floor'] ** 2:.3f}; "
                "errors are on new data, not on the training's.",
            )
        )
    return tuple(claims)


def _notes() -> tuple[str, ...]:
    return (
        "w, x ~ N(0, I) in sixteen dimensions; RMSE over all pairs of new rows and inputs.",
        "The paper gives neither m nor the layers of this run; its recipe of section 4.2 is taken, for as many steps.",
    )


def _figure(table: pd.DataFrame, top: int):
    methods = []
    for recipe, name in (("fresh", "new data, last layers solved for"), ("paper", "the recipe of section 4.2")):
        part = table[table["recipe"] == recipe]
        methods.append(Method(name, np.asarray(part["m"], float), np.asarray(part["rmse"], float)))
    level = (math.sqrt(PAPER_LOSS), f"the paper's loss of {PAPER_LOSS}; its m is not given")
    ms = np.unique(np.geomspace(1, top, 60).round().astype(int))
    panel = FloorPanel("", ms.astype(float), floor_curve("gelu", D, ms.tolist()), tuple(methods), 4.0, level)
    return floor_figure([panel], "GELU(w.x) by two networks, d = 16, w, x ~ N(0, I)")


STUDY = Study(
    "linearize/learned16",
    "Learned maps in sixteen dimensions",
    "Training at d = 16 levels at a loss of 2.013 after 2000 steps.",
    run,
)
