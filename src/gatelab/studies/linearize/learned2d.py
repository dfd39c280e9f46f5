"""Section 4.2: two networks trained as Phi and Psi in two dimensions, over seeds and all pairs; section 4.1 with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from gatelab.feedforward import activation
from gatelab.linearization import floor, monte_carlo, monte_carlo_variance
from gatelab.linearization.builders.trained_maps import learned_maps, population_rmse
from gatelab.linearization.monomials import Maps
from gatelab.plotting.facets import Facets, Overlay
from gatelab.statistics import sample, welch_difference
from gatelab.studies.claims import Claim
from gatelab.studies.definition import Request
from gatelab.studies.engine import Study, Tables, averaged, interval_at
from gatelab.studies.inventory import printed

EPOCHS = {n: float(printed("linearize", f"section 4.2.3, {n} epochs")) for n in (3, 10, 30)}
M, D = 16, 2
EPOCH = 16  # steps
SINGLES = 2000  # pairs of W and x, of which the paper has one
Z = (-2.48, -1.0, 0.5, 1.55, 2.23)
DRAWS, SAMPLES = 4000, (16, 256)  # Monte Carlo estimates, and the samples in each
SURE = 4.5  # standard errors: in less than one of 10 000 studies does one of five means lie beyond it at random
RECIPES = {"paper": "paper's recipe", "fresh": "new data"}
COUNTED = {"paper": "epochs", "fresh": "steps"}
GELU = activation("gelu")
Plan = tuple[str, int, int]


def plans(epochs: Sequence[int], steps: Sequence[int], seeds: int) -> list[Plan]:
    """The recipe, its epochs or steps, and the seed of every training; that with new data takes two seeds."""
    paper = [("paper", count, seed) for count in epochs for seed in range(seeds)]
    return [*paper, *(("fresh", count, seed) for count in steps for seed in range(2))]


STUDY = Study(
    "linearize/learned2d",
    "Learned maps in two dimensions",
    "Two networks approximate GELU(Wx) at d = 2: RMSE 0.1245, 0.0822, 0.0891 after 3, 10, 30 epochs.",
    position=4,
    grid={"recipe, count, seed": plans((3, 10, 30, 100, 300), (1, 30, 300), 5)},
    quick={"recipe, count, seed": plans((3, 10), (10,), 2)},
    figure=Facets(
        table="errors", x="steps", y="rmse", hue="recipe", xlog=True, ylog=True, paper="paper", names=RECIPES,
        lines=(Overlay("floor", "floor, m = 16", "solid", hue=False),), xlabel="training steps",
        ylabel="RMSE over all pairs", title="GELU(w.x) by two networks, d = 2, m = 16 (the paper: one pair)",
    ),
)  # fmt: skip


def drawn_pairs(maps: Maps, count: int, seed: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Phi(W) Psi(x) and GELU(W x) of drawn matrices W and inputs x, (count, d) each."""
    draw, d = torch.Generator().manual_seed(seed), maps.d
    W = torch.randn(count, d, d, generator=draw, dtype=dtype).double()
    x = torch.randn(count, d, 1, generator=draw, dtype=dtype).double()
    products = maps.phi(W.reshape(-1, d)).reshape(count, d, -1) @ maps.psi(x[:, :, 0])[:, :, None]
    return products[:, :, 0], GELU(W @ x)[:, :, 0]


def single_errors(maps: Maps, seed: int) -> Tensor:
    """The RMSE on single pairs of a new W and a new x, which is what the paper reports."""
    made, exact = drawn_pairs(maps, SINGLES, seed)
    return (made - exact).square().mean(1).sqrt()


@STUDY.measure("runs")
def runs(recipe: str, count: int, seed: int) -> dict[str, float]:
    """One training: its error over all pairs of new rows and inputs, and the middle nine tenths of single pairs."""
    options = {COUNTED[recipe]: count}
    maps = learned_maps(GELU, D, m=M, recipe=recipe, seed=seed, **options)  # type: ignore[arg-type]
    low, high = np.quantile(single_errors(maps, 9000 + seed), (0.05, 0.95))
    rmse = population_rmse(maps, GELU, seed=9000 + seed)
    return {"rmse": rmse, "pair_low": low, "pair_high": high, "steps": count * {"paper": EPOCH}.get(recipe, 1)}


@STUDY.tables
def estimates(request: Request) -> Tables:
    """GELU by Monte Carlo, section 4.1: mean and variance of many estimates at five z."""
    z = torch.tensor(Z, dtype=torch.float64)
    parts = []
    for samples in SAMPLES:
        draw = torch.Generator().manual_seed(0)
        drawn = torch.stack([monte_carlo(z, samples, "naive", draw) for _ in range(DRAWS)]).numpy()
        numbers = {"N": samples, "z": Z, "gelu": GELU(z), "mean": drawn.mean(0), "variance": drawn.var(0, ddof=1)}
        parts.append(pd.DataFrame({**numbers, "expected_variance": monte_carlo_variance(z, samples).numpy()}))
    return {"monte_carlo": pd.concat(parts)}


@STUDY.columns
def columns(tables: Tables, rows: Tables) -> Tables:
    """Means over seeds, next to the least error that any maps can have and to the paper's numbers."""
    errors = averaged(tables["runs"], "seed", ["recipe", "count", "steps"], "arithmetic")
    errors = errors.drop(columns=errors.filter(regex="pair_.*_").columns)
    paper = errors["count"].map(EPOCHS).where(errors["recipe"] == "paper")
    return {"errors": errors.assign(floor=floor("gelu", D, M), paper=paper), **tables}


@STUDY.claims
def claims(tables: Tables) -> Iterator[Claim]:
    """The paper's recipe after its epochs, what more epochs and more data do, and the bias of both sections."""
    errors, by_run = tables["errors"], tables["runs"].groupby(["recipe", "count"])["rmse"]
    found = {key: sample(values.to_numpy(float)) for key, values in by_run}
    of_recipe = {name: rows.set_index("count") for name, rows in errors.groupby("recipe")}
    paper, fresh = of_recipe["paper"], of_recipe["fresh"]
    for epochs in sorted(set(EPOCHS) & set(paper.index)):
        row = paper.loc[epochs]
        yield Claim(
            f"RMSE after {epochs} epochs", *row[["rmse", "pair_low", "pair_high"]], paper=EPOCHS[epochs], rule="equal",
            place=f"section 4.2.3, {epochs} epochs",
            support={"mean over seeds": interval_at(row, "rmse"), "over the paper's": row["rmse"] / row["paper"]},
            note="Over all pairs. The interval holds nine of ten single pairs; the paper's number is of one pair.",
        )  # fmt: skip
    if {10, 30} <= set(paper.index):
        yield Claim.of(
            "RMSE after 30 epochs minus that after 10", welch_difference(found["paper", 10], found["paper", 30]), 0.0,
            "above", place="section 4.2.3, worse after 30 epochs",
            note="The paper has 0.0891 against 0.0822, possibly overfitting: chance in its one pair.",
        )  # fmt: skip
    longest, most = paper.index[-1], fresh.index[-1]
    yield Claim.of(
        "more data: RMSE of the paper's recipe minus that with new data at every step",
        welch_difference(found["fresh", most], found["paper", longest]), 0.0, "above",
        place="section 4.2.3, more data",
        support={"the paper's recipe": paper.loc[longest, "rmse"], "new data": fresh.loc[most, "rmse"]},
        note="The paper says that more data could improve accuracy.",
    )  # fmt: skip
    yield Claim(
        f"least RMSE of any maps of {M} features", float(errors["floor"].iloc[0]), paper=0.0, rule="number",
        place="section 4.2.3, unbiased",
        note="The paper calls learned maps unbiased.",
    )  # fmt: skip
    few, many = (tables["monte_carlo"].query(f"N == {n}").set_index("z") for n in SAMPLES)
    bias, error = few["mean"] - few["gelu"], (few["variance"] / DRAWS) ** 0.5
    z = (bias / error).abs().idxmax()
    yield Claim(
        "mean of the Monte Carlo estimates minus GELU (section 4.1)", bias[z], bias[z] - SURE * error[z],
        bias[z] + SURE * error[z], paper=0.0, rule="number", place="section 4.1.2, unbiased",
        support={"z, the farthest of five": z, "standard errors": abs(bias[z] / error[z])},
        note=f"The paper calls it unbiased. The interval is of {SURE} standard errors.",
    )  # fmt: skip
    falls = few["variance"] / many["variance"] / (SAMPLES[1] / SAMPLES[0])
    z = np.log(falls).abs().idxmax()
    theory = many["variance"] / many["expected_variance"]
    yield Claim(
        "variance of N = 16 over 16 times that of N = 256 (section 4.1)", falls[z], paper="1: consistent",
        rule="close", place="section 4.1.2, consistent",
        support={"z, the farthest of five": z, "variance over z² Φ(1 - Φ)/N": [theory.min(), theory.max()]},
    )  # fmt: skip
