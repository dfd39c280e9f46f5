"""Section 4.2: two networks trained as Phi and Psi in two dimensions, over seeds, on all pairs and not on one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure

from gatelab.feedforward import Activation, activation
from gatelab.linearization import floor
from gatelab.linearization.builders.trained_maps import learned_maps, population_rmse
from gatelab.linearization.monomials import Maps
from gatelab.plotting.kernels import Series
from gatelab.plotting.maps import training_figure
from gatelab.statistics import LEVEL, Interval, t_reach
from gatelab.studies.definition import Claim, Outcome, Request, Study, Verdict, ticker
from gatelab.studies.linearize.table1 import monte_carlo_claims
from gatelab.studies.verdicts import reproduced_if, side_verdict

PAPER = {3: 0.1245, 10: 0.0822, 30: 0.0891}  # RMSE on one random pair (W, x)
M, D = 16, 2
SINGLES = 2000
GELU = activation("gelu")


def run(request: Request) -> Outcome:
    """The paper's recipe for several epochs, and new data at every step, over seeds."""
    epochs, steps, seeds = (3, 10, 30, 100, 300), (1, 30, 300), range(5)
    if request.quick:
        epochs, steps, seeds = (3, 10), (10,), range(2)
    plans: list[tuple[str, int, dict[str, int]]] = [
        *(("paper", seed, {"epochs": count}) for count in epochs for seed in seeds),
        *(("fresh", seed, {"steps": count}) for count in steps for seed in seeds[:2]),
    ]
    tick = ticker(request, len(plans))
    rows: list[dict[str, Any]] = []
    for recipe, seed, options in plans:
        maps = learned_maps(GELU, D, m=M, recipe=recipe, seed=seed, **options)  # type: ignore[arg-type]
        low, high = np.quantile(single_pairs(maps, GELU, 9000 + seed), (0.05, 0.95))
        rmse = population_rmse(maps, GELU, seed=9000 + seed)
        rows.append({"recipe": recipe, **options, "seed": seed, "rmse": rmse, "pair_low": low, "pair_high": high})
        tick()
    table = pd.DataFrame(rows)
    least = floor("gelu", D, M)
    by_epochs = table[table["recipe"] == "paper"].groupby("epochs")
    paper = by_epochs["rmse"].agg(["mean", "std", "min", "max", "count"])
    paper = paper.assign(low=by_epochs["pair_low"].mean(), high=by_epochs["pair_high"].mean()).reset_index()
    ours = table[table["recipe"] == "fresh"].groupby("steps")["rmse"].agg(["mean", "min", "max", "count"]).reset_index()
    tables = {"runs": table, "paper-recipe": paper, "ours": ours}
    return Outcome(draw(paper, ours, least), tables, claims(paper, ours, least), NOTES)


def single_pairs(maps: Maps, gate: Activation, seed: int) -> np.ndarray:
    """The RMSE on single pairs of a new matrix W and a new x, which is what the paper reports."""
    draw = torch.Generator().manual_seed(seed)
    W = torch.randn(SINGLES, D, D, generator=draw, dtype=torch.float64)
    x = torch.randn(SINGLES, D, generator=draw, dtype=torch.float64)
    products = (maps.phi(W.reshape(-1, D)).reshape(SINGLES, D, -1) @ maps.psi(x)[:, :, None])[:, :, 0]
    return (products - gate(torch.einsum("bij,bj->bi", W, x))).square().mean(1).sqrt().numpy()


# ---- what it says


def claims(paper: pd.DataFrame, ours: pd.DataFrame, least: float) -> tuple[Claim, ...]:
    """Of the tables of the paper's recipe and of ours, and of the least error that any maps can have."""
    rows = [row for row in paper.to_dict("records") if int(row["epochs"]) in PAPER]
    by_epochs = {int(row["epochs"]): row for row in rows}
    order = []
    if 10 in by_epochs and 30 in by_epochs:
        order.append(overfitting_claim(by_epochs[10], by_epochs[30], int(paper["count"].iloc[0])))
    last, best = (frame.to_dict("records")[-1] for frame in (paper, ours))
    return (
        *(epochs_claim(n, row) for n, row in by_epochs.items()),
        *order,
        Claim(
            "more data",
            "could improve accuracy",
            f"{best['mean']:.4f} with new data at every step; the paper's recipe {last['mean']:.3f}",
            ranges_verdict(best, last),
            f"The paper's recipe after {int(last['epochs'])} epochs on its 1024 matrices. The floor is {least:.5f}.",
            f"over {int(best['count'])} seeds: {best['min']:.4f} to {best['max']:.4f}",
            place="section 4.2.3, more data",
        ),
        Claim(
            "whether learned maps are unbiased",
            "unbiased: not limited as the polynomial's degree is",
            f"no maps of {M} features have RMSE below {least:.4f}",
            reproduced_if(least < 1e-3),
            f"m limits them as the degree limits a polynomial: the best of all pairs of maps leaves {least:.5f}, and "
            "what it leaves is a function of w and x, not chance that more data would average out.",
            place="section 4.2.3, unbiased",
        ),
        *monte_carlo_claims(),
    )


def epochs_claim(n: int, row: Mapping[Any, Any]) -> Claim:
    """The paper's number, of one pair, beside the error over all pairs and over single ones."""
    return Claim(
        f"RMSE after {n} epochs",
        f"{PAPER[n]:.4f} (one pair)",
        f"{row['mean']:.3f} over all pairs; {row['low']:.3f} to {row['high']:.3f} on nine of ten single pairs",
        single_verdict(PAPER[n], row),
        f"Undecided where it is among the middle nine tenths of {SINGLES} single pairs: one pair of W and x has "
        "two outputs, and their RMSE says little about the maps. As an error of the maps it would be "
        f"{row['mean'] / PAPER[n]:.1f} times too small.",
        f"over {int(row['count'])} seeds: {row['min']:.3f} to {row['max']:.3f}",
        place=f"section 4.2.3, {n} epochs",
    )


def single_verdict(paper: float, row: Mapping[Any, Any]) -> Verdict:
    """An error of one pair can contradict the maps, outside of what single pairs have, and cannot confirm them."""
    if row["low"] <= paper <= row["high"]:
        return "undecided"
    return "differs"


def ranges_verdict(lower: Mapping[Any, Any], upper: Mapping[Any, Any]) -> Verdict:
    """Whether one group of seeds lies wholly below another; groups that overlap decide nothing."""
    if lower["max"] < upper["min"]:
        return "reproduced"
    if lower["min"] > upper["max"]:
        return "differs"
    return "undecided"


def difference(first: Mapping[Any, Any], second: Mapping[Any, Any]) -> Interval:
    """The mean of the first less that of the second, with a t-interval; freedom is that of the smaller group."""
    error = math.sqrt(first["std"] ** 2 / first["count"] + second["std"] ** 2 / second["count"])
    reach = t_reach(LEVEL, min(first["count"], second["count"]) - 1) * error
    value = float(first["mean"] - second["mean"])
    return Interval(value, value - reach, value + reach)


def overfitting_claim(ten: Mapping[Any, Any], thirty: Mapping[Any, Any], seeds: int) -> Claim:
    """Whether more epochs make the maps worse."""
    word = "better" if thirty["mean"] < ten["mean"] else "worse"
    return Claim(
        "30 epochs are worse than 10",
        "0.0891 against 0.0822, possibly overfitting",
        f"{thirty['mean']:.3f} against {ten['mean']:.3f}: {word}",
        side_verdict(difference(thirty, ten), 0, "above"),
        "Means over the seeds, on new pairs: there is no overfitting yet. The paper's order is chance in its one pair.",
        f"over {seeds} seeds: {thirty['min']:.3f} to {thirty['max']:.3f} against {ten['min']:.3f} to {ten['max']:.3f}",
        place="section 4.2.3, worse after 30 epochs",
    )


NOTES = (
    "Population RMSE: all pairs of 3000 new rows and 3000 new inputs; strokes span the seeds.",
    "The paper's recipe: 1024 matrices with one x each, hidden layers of 64 relu, Adam at 1e-3, batches of 64. "
    "An epoch is 16 steps, and the axis counts steps.",
)


# ---- figure


def draw(paper: pd.DataFrame, ours: pd.DataFrame, least: float) -> Figure:
    """Errors over the steps by both recipes, the paper's numbers, and the floor."""

    def series(label: str, part: pd.DataFrame, x, colour: str, marker: str) -> Series:
        mean, low, high = (part[c].to_numpy(float) for c in ("mean", "min", "max"))
        return Series(label, np.asarray(x, float), mean, low, high, colour=colour, marker=marker)

    shown = sorted(PAPER)
    drawn = [
        series("the paper's recipe, population RMSE", paper, paper["epochs"] * 16, "#0072B2", "o"),
        series("new data at every step, last layers solved for, population RMSE", ours, ours["steps"], "#D55E00", "s"),
        Series(
            "the paper's figures, one pair each",
            np.array([16.0 * n for n in shown]),
            np.array([PAPER[n] for n in shown]),
            colour="#6b6b6b",
            marker="x",
            line="",
        ),
    ]
    return training_figure(
        drawn,
        [(least, f"the floor for m = {M}: {least:.5f}", "-")],
        x_label="training steps",
        y_label="RMSE",
        title=f"GELU(w.x) by two networks, d = {D}, m = {M}",
    )


STUDY = Study(
    "linearize/learned2d",
    "Learned maps in two dimensions",
    "Two networks approximate GELU(Wx) at d = 2: RMSE 0.1245, 0.0822, 0.0891 after 3, 10, 30 epochs.",
    run,
    position=4,
)
