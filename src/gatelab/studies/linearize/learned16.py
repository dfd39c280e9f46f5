"""Section 4.3: learned maps in sixteen dimensions, where the paper's loss levels at 2.013; ours, and the floor."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
import pandas as pd
import torch

from gatelab.linearization import floor_curve
from gatelab.linearization.builders.trained_maps import learned_maps, population_rmse
from gatelab.linearization.monomials import Maps
from gatelab.plotting.facets import Facets, Overlay
from gatelab.studies.claims import Claim
from gatelab.studies.definition import Request
from gatelab.studies.engine import Study, Tables
from gatelab.studies.linearize.learned2d import COUNTED, EPOCH, GELU, drawn_pairs

PAPER_LOSS = 2.013
D = 16
DEFAULT_M = 16  # of the code in section 4.2; the paper does not say what m its run with d = 16 has
RECIPES = {"fresh": "new data, last layers solved for", "paper": "the recipe of section 4.2"}
UNKNOWN = "The paper says neither m nor whether its data are new at every step; m is the default of its code."
STUDY = Study(
    "linearize/learned16",
    "Learned maps in sixteen dimensions",
    "Training at d = 16 levels at a loss of 2.013 after 2000 steps.",
    position=5,
    figure=(
        Facets(
            table="steps", x="steps", y="new_data", xlabel="training steps", ylabel="mean squared error on new data",
            lines=(Overlay("training", "on the training data"),), levels={"the paper's 2.013": PAPER_LOSS},
            title="figure 1: the recipe of section 4.2, m = 16",
        ),
        Facets(
            table="errors", x="m", y="rmse", hue="recipe", xlog=True, ylog=True, points=True,
            names={"fresh": "new data", "paper": "section 4.2"},
            lines=(Overlay("floor", "the floor", "dotted", hue=False),),
            levels={"√2.013": math.sqrt(PAPER_LOSS)}, xlabel="features m", ylabel="RMSE on new data",
            title="after the last step",
        ),
    ),
)  # fmt: skip


@lru_cache(maxsize=8)
def trained(recipe: str, m: int, count: int) -> Maps:
    """Maps of a recipe after its epochs or steps; shorter runs begin alike."""
    options = {COUNTED[recipe]: count}
    return learned_maps(GELU, D, m=m, recipe=recipe, **options)  # type: ignore[arg-type]


def training_loss(maps: Maps, seed: int = 0) -> float:
    """The loss on the 1024 pairs of the paper's recipe, drawn again."""
    made, exact = drawn_pairs(maps, 1024, seed, torch.float32)
    return float((made - exact).square().mean())


@STUDY.measure(
    "errors",
    grid={"recipe": list(RECIPES), "m": [1, DEFAULT_M, 64, 152, 256], "steps, epochs, rows": [(100, 125, 2000)]},
    quick={"m": [DEFAULT_M, 64], "steps, epochs, rows": [(10, 5, 1000)]},
)
def errors(recipe: str, m: int, steps: int, epochs: int, rows: int) -> dict[str, float]:
    """The error on new data, and the loss on the training data where there are such."""
    maps = trained(recipe, m, {"paper": epochs, "fresh": steps}[recipe])
    rmse = population_rmse(maps, GELU, seed=9000, rows=rows)
    training = math.nan
    if recipe == "paper":
        training = training_loss(maps)
    return {"rmse": rmse, "mse": rmse**2, "training": training}


@STUDY.measure("steps", grid={"epochs": [8, 31, 62, 94, 125]}, quick={"epochs": [2, 5]})
def losses(epochs: int) -> dict[str, float]:
    """Both losses of the recipe of section 4.2, up to the paper's 2000 steps."""
    maps = trained("paper", DEFAULT_M, epochs)
    new = population_rmse(maps, GELU, seed=9000, rows=2000) ** 2
    return {"m": DEFAULT_M, "steps": EPOCH * epochs, "training": training_loss(maps), "new_data": new}


@STUDY.measure("examples", together="example", grid={"epochs": [125], "example": [1, 2, 3, 4]}, quick={"epochs": [5]})
def examples(epochs: int, example: Sequence[int]) -> Iterator[dict[str, float]]:
    """GELU(Wx) and y' on new pairs of sixteen outputs each."""
    made, exact = (part.numpy() for part in drawn_pairs(trained("paper", DEFAULT_M, epochs), len(example), 4321))
    for outputs, y in zip(made, exact, strict=True):
        alike = float(np.corrcoef(outputs, y)[0, 1])
        yield {"mse": float(((outputs - y) ** 2).mean()), "correlation": alike, "square": float((y**2).mean())}


@STUDY.tables
def floors(request: Request) -> Tables:
    """The least error of maps by their number of features."""
    return {"floors": pd.DataFrame({"m": range(300), "floor": floor_curve("gelu", D, list(range(300)))})}


@STUDY.columns
def columns(tables: Tables, rows: Tables) -> Tables:
    """The floor next to the errors."""
    return {**tables, "errors": tables["errors"].merge(tables["floors"], on="m", how="left")}


@STUDY.claims
def claims(tables: Tables) -> Iterator[Claim]:
    """Where the paper's loss is possible, the losses with the m of its code, and its examples."""
    floor = tables["floors"].set_index("m")["floor"]
    yield Claim(
        f"features from which on a loss of {PAPER_LOSS} is possible", float((floor**2 <= PAPER_LOSS).idxmax()),
        support={"loss of predicting 0": floor[0] ** 2, "of the best single feature": floor[1] ** 2},
        note="The paper does not say m.",
    )  # fmt: skip
    for recipe, name in RECIPES.items():
        of_m = tables["errors"].query(f"recipe == '{recipe}'").set_index("m")
        row, most = of_m.loc[DEFAULT_M], of_m.index.max()
        support = {}
        if recipe == "paper":
            support["on its training data"] = row["training"]
        support |= {"the floor of new data": row["floor"] ** 2, f"with m = {most}": of_m.loc[most, "mse"]}
        yield Claim(
            f"loss with m = {DEFAULT_M}, {name}", row["mse"], paper=PAPER_LOSS, rule="number", reconstructed=True,
            place=f"section 4.3.3, the level of the loss, {name}",
            support=support | {f"the floor with m = {most}": of_m.loc[most, "floor"] ** 2}, note=UNKNOWN,
        )  # fmt: skip
    steps = tables["steps"].set_index("steps")
    half, last = steps[steps.index >= steps.index[-1] / 2].iloc[0], steps.iloc[-1]
    yield Claim(
        "training loss over the steps (figure 1)", last["training"], paper=PAPER_LOSS, rule="number",
        reconstructed=True, place="figure 1, training loss over 2000 steps",
        support={"on new data": last["new_data"], f"both at step {half.name}": list(half[["training", "new_data"]])},
        note=UNKNOWN,
    )  # fmt: skip
    four = tables["examples"]
    pairs, alike, scale = four["mse"] ** 0.5, four["correlation"], float(four["square"].mean() ** 0.5)
    yield Claim(
        "RMSE of y' on four new pairs (examples 1-4)", float(four["mse"].mean() ** 0.5),
        paper="four pictures without numbers",
        place="; ".join(f"section 4.3.2, example {number}" for number in range(1, 5)),
        support={"by pair": list(pairs), "correlation": list(alike), "root mean square of GELU(Wx)": scale},
    )  # fmt: skip
