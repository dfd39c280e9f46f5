"""Figure 6: loss crossing of gated and plain units, predicted and measured, on Gaussian data and on MNIST.

Both units of a pair take the same step, a share of 1 / λ_max of the one whose λ_max is larger. Targets have ten
columns: their loss varies less between seeds. The closed form is compared with trained networks as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from gatelab.arrays import Array
from gatelab.dynamics import crossing, expected_loss, finite_width_loss, in_span, measured_crossing, stable_step, train
from gatelab.errors import GatelabError
from gatelab.ntk import analytic
from gatelab.plotting.facets import Facets, Overlay, draw_figure
from gatelab.statistics import Interval
from gatelab.studies.claims import Claim
from gatelab.studies.definition import Request
from gatelab.studies.engine import Study, Table, Tables, grid_cells, interval_at, measured_rows
from gatelab.studies.ntk.gaussian import NAMES, PAIRS, samples

NEW_PAIRS = (("mlp", "gqu"), ("relu2", "glu"))
OUTPUTS = 10
SETS = [("Gaussian", 100, 30, 2048, 20), ("MNIST", 128, 784, 1024, 8)]  # data, n, d, width and seeds
QUICK_SETS = [("Gaussian", 40, 15, 256, 5)]
SHARES = (0.25, 0.5, 1.0, 1.5)  # of 1 / λ_max; from 2 on gradient descent diverges
DRAWN = 0.5  # the share that the panels of curves show
BEYOND = 1.6  # networks are trained to this multiple of the predicted crossing
HORIZON = 4000
CHECKED = 0.8  # of 1 / λ_max of the ReLU, where the closed form is checked
ENDS = (("_low", "_high"), ("_high", "_low"))  # of numerator and denominator, for the ends of a ratio
SURE = 3  # standard errors, at the worst step
DRAWS = 24
LEVELS = {"paper": "largest error", "exact": "with the exact NNGP kernel", "given": "given the initial outputs"}
LEVELS |= {"own": "given the kernels too"}
CURVES: dict[str, Any] = {"table": "curves", "x": "step", "y": "measured", "hue": "unit", "ylog": True, "names": NAMES}
CURVES |= {"lines": (Overlay("predicted", "closed form"),), "xlabel": "step", "ylabel": "training loss"}
FIGURE = (
    Facets(
        **CURVES, where={"lr_times_lambda_max": DRAWN}, col="panel", wrap=3, marks=("crossing", "predicted crossing"),
        title=f"Figure 6: loss crossing at {DRAWN:g} / λ_max",
    ),
    Facets(
        table="crossings", x="lr_times_lambda_max", y="measured", hue="pair", col="data", wrap=1, xlog=True, ylog=True,
        lines=(Overlay("predicted", "closed form"),), xlabel="learning rate times λ_max", ylabel="step of the crossing",
        title="all learning rates", points=True,
    ),
)  # fmt: skip


def draw(tables: Tables) -> Figure:
    crossings, keys = tables["crossings"], ["data", "pair", "lr_times_lambda_max"]
    steps = crossings.assign(pair=crossings["first"] + "/" + crossings["second"]).set_index(keys)["predicted"].round()
    curves = tables["curves"].join(steps.rename("crossing"), on=keys)
    names = [" and ".join(map(NAMES.__getitem__, pair.split("/"))) for pair in curves["pair"]]
    curves = curves.assign(panel=curves["data"] + ": " + names, crossing=curves["step"] == curves["crossing"])
    return draw_figure(FIGURE, {**tables, "curves": curves})


STUDY = Study(
    "ntk/fig6",
    "Loss crossing",
    "Units without a gate lead at first and are overtaken, for ReLU, GELU and SiLU, on Gaussian data and MNIST.",
    long=True,
    position=6,
    figure=draw,
    cards={
        "Crossings are predicted": Facets(
            **CURVES, where={"data": "Gaussian", "pair": "mlp/glu", "lr_times_lambda_max": DRAWN}
        )
    },
)


# ---- crossings


def data_set(name: str, n: int, d: int) -> tuple[Array, Array]:
    """Samples, and centered targets with a column per output.

    Images are the first ones for training minus the mean image, scaled to |x|² = d on average.
    """
    if name == "Gaussian":
        generator = np.random.default_rng([6, n, d])
        return generator.standard_normal((n, d)), generator.standard_normal((n, OUTPUTS))
    from gatelab.data.images import image_data

    rows = image_data("mnist").train
    pixels = rows.images[:10_000].flatten(1).double().numpy()
    X = pixels[:n] - pixels.mean(axis=0)
    X *= np.sqrt(X.shape[1] / np.mean(np.sum(X**2, axis=1)))
    return X, np.eye(OUTPUTS)[rows.labels[:n].numpy()] - 1 / OUTPUTS


def readable(name: str, n: int, d: int) -> bool:
    try:
        return bool(data_set(name, n, d))
    except GatelabError:
        return False


@STUDY.tables
def crossings(request: Request) -> Tables:
    """Every pair at every learning rate, on the data that can be read; the curves are a separate table."""
    sets, shares = QUICK_SETS, SHARES[1:3]
    if not request.quick:
        sets, shares = [one for one in SETS if readable(*one[:3])], SHARES
    grid = {"data, n, d, width, seeds": sets, "first, second": (*PAIRS, *NEW_PAIRS), "lr_times_lambda_max": shares}
    rows = measured_rows("gatelab.studies.ntk.fig6:crossing_at", grid_cells(grid), "", request)
    pair = rows["first"] + "/" + rows["second"]
    curves = [
        pd.DataFrame({"data": row["data"], "pair": name, "lr_times_lambda_max": row["lr_times_lambda_max"], **part})
        for name, row in zip(pair, rows.to_dict("records"), strict=True)
        for part in row["curves"]
    ]
    pairs = rows["first"].map(NAMES) + ", " + rows["second"].map(NAMES)
    return {"crossings": rows.drop(columns="curves").assign(pair=pairs), "curves": pd.concat(curves, ignore_index=True)}


def crossing_at(
    data: str, n: int, d: int, width: int, seeds: int, first: str, second: str, lr_times_lambda_max: float
) -> dict[str, Any]:
    """The expected crossing of a pair, also given the initial outputs, and the measured one."""
    X, Y = data_set(data, n, d)
    units = (first, second)
    K, K_gated = kernels = analytic(list(units), X, width)
    lr = lr_times_lambda_max / max(stable_step(kernel).lambda_max for kernel in kernels)
    expected = crossing(K, K_gated, Y, lr=lr, nngp=tuple(analytic(list(units), X, kind="nngp")), steps=HORIZON)
    if expected.step is None:
        raise GatelabError(f"no crossing of {first} and {second} is predicted on {data} data")
    end = int(BEYOND * expected.step) + 5
    settings: dict[str, Any] = {"seeds": seeds, "fan_in": d, "record": range(end + 1)}
    a, b = (train(unit, in_span(X), Y, width, lr, end, **settings) for unit in units)
    given = crossing(K, K_gated, Y, lr=lr, start=(a.start, b.start), steps=end).changes
    measured = measured_crossing(a, b)
    step = np.nan if measured.step is None else measured.step
    before, sign = a.steps <= expected.step, 1 if expected.first == expected.labels[0] else -1
    losses = [curve.at(a.steps[before]).loss for curve in expected.curves], [run.mean[before] for run in (a, b)]
    leads = [float(np.max((of_second / of_first) ** sign - 1)) for of_first, of_second in losses]
    curves = []
    for unit, run, curve in zip(units, (a, b), expected.curves, strict=True):
        low, high = run.interval()
        columns = {"step": run.steps.astype(int), "measured": run.mean, "measured_low": low, "measured_high": high}
        columns["predicted"] = curve.at(run.steps).loss
        curves.append({"unit": unit} | {name: column.tolist() for name, column in columns.items()})
    from_start, bound = given[-1].step if given else np.nan, expected.late.bound
    return {
        "lr": lr, "predicted": expected.step, "predicted_given_start": from_start, "measured": step,
        "measured_low": measured.low, "measured_high": measured.high, "crossing_draws": measured.share,
        "measured_over_predicted": step / expected.step, "measured_over_given": step / from_start,
        "lead_predicted": leads[0], "lead_measured": leads[1], "early_condition": expected.early.holds,
        "late_condition": expected.late.holds, "paper_bound": np.nan if bound is None else bound, "curves": curves,
    }  # fmt: skip


# ---- the closed form, step by step


@STUDY.measure(
    "closed-form",
    together="step",
    grid={"unit": ["mlp", "glu"], "n, d, width, seeds": [(60, 30, 4096, 6)], "step": range(61)},
    quick={"n, d, width, seeds": [(30, 15, 256, 6)], "step": range(21)},
)
def closed_form(unit: str, n: int, d: int, width: int, seeds: int, step: Sequence[int]) -> Iterator[dict[str, float]]:
    """Mean losses of networks on Gaussian data, the expected loss, and the expected noise of the mean.

    In ascending exactness: "paper" takes K/m for the NNGP kernel, "exact" the NNGP kernel itself, "finite" the kernels
    of drawn networks, "given" the initial outputs of the networks, "own" the outputs and the kernel of each network.
    """
    X, y, steps = samples(n, d, 0), np.random.default_rng([7, n]).standard_normal(n), step[-1]
    relu, kernel = analytic(["mlp", unit], X, width)
    lr = CHECKED / float(np.linalg.eigvalsh(relu.numpy())[-1])
    run = train(unit, X, y, width, lr, steps, seeds=seeds)
    exact = expected_loss(kernel, y, lr=lr, steps=steps, nngp=analytic(unit, X, kind="nngp"))
    assert exact.deviation is not None
    columns = {
        "measured": run.mean,
        "standard_error": exact.deviation / seeds**0.5,
        "paper": expected_loss(kernel, y, width, lr, steps).loss,
        "exact": exact.loss,
        "finite": finite_width_loss(unit, X, y, width, lr, steps, seeds=range(1000, 1000 + DRAWS)).loss,
        "given": expected_loss(kernel, y, lr=lr, steps=steps, start=run.start).loss,
        "own": finite_width_loss(unit, X, y, width, lr, steps, seeds=seeds, given_start=True).loss,
    }
    for i in step:
        yield {name: float(column[i]) for name, column in columns.items()}


@STUDY.claims
def claims(tables: Tables) -> Iterator[Claim]:
    table = tables["crossings"]
    for _, rows in table.groupby(["data", "first", "second"], sort=False):
        yield pair_claim(rows)
    relu = table[(table["first"] == PAIRS[0][0]) & (table["second"] == PAIRS[0][1])]
    for data, rows in relu.groupby("data", sort=False):
        yield from rate_claims(str(data), rows)
    yield bound_claim(relu[relu["lr_times_lambda_max"] == DRAWN])
    for unit, rows in tables["closed-form"].groupby("unit", sort=False):
        yield closed_form_claim(NAMES[str(unit)], rows)


def pair_claim(rows: Table) -> Claim:
    """Whether a pair crosses at every learning rate; pairs that are not in the paper are new."""
    first, second, data = rows[["first", "second", "data"]].iloc[0]
    what = f"{NAMES[first]} and {NAMES[second]}, {data}"
    steps = {row["lr_times_lambda_max"]: interval_at(row, "measured") for row in rows.to_dict("records")}
    support: dict[str, Any] = {f"step at {share:g} / λ_max": step for share, step in steps.items()} | {
        "predicted": rows["predicted"].tolist(),
        "measured over predicted": rows["measured_over_predicted"].tolist(),
        "over predicted from the initial outputs": rows["measured_over_given"].tolist(),
    }
    if (first, second) in NEW_PAIRS:
        return Claim.of(f"crossing of {what}, step at {DRAWN:g} / λ_max", steps[DRAWN], support=support)
    place = f"figure 6, (a) to (d): {what}"
    if (first, second, data) == (*PAIRS[0], "Gaussian"):
        place += "; corollary 4.2, early stage"
    crossed, paper = float((rows["crossing_draws"] >= 0.95).all()), "the gated unit overtakes"
    return Claim(f"crossing of {what}", crossed, paper=paper, rule="holds", place=place, support=support)


def rate_claims(data: str, rows: Table) -> Iterator[Claim]:
    """How long the early advantage lasts and how large it is, by learning rate."""
    name, low, high, leads = NAMES[PAIRS[0][0]], rows.iloc[0], rows.iloc[-1], rows["lead_measured"].tolist()
    shares = f"{low['lr_times_lambda_max']:g} to {high['lr_times_lambda_max']:g} / λ_max"
    shorter = Interval(*(high[f"measured{a}"] / low[f"measured{b}"] for a, b in (("", ""), *ENDS)))
    times = (rows["lr_times_lambda_max"] * rows["predicted"]).tolist()
    yield Claim.of(
        f"how long {name} stays ahead, by learning rate, {data}", shorter, 1.0, "below",
        place=f"section 4.2, learning rate, {data}, how long",
        support={f"steps at {shares}": rows["measured"].tolist(), "learning rate times predicted step": times},
        note="Steps at the largest rate over steps at the smallest. The paper says that a larger rate diminishes the "
        "early advantage; to first order the rate only scales time.",
    )  # fmt: skip
    yield Claim(
        f"how far {name} gets ahead, by learning rate, {data}", float(all(b < a for a, b in pairwise(leads))),
        paper="a larger learning rate diminishes the early advantage", rule="holds",
        place=f"section 4.2, learning rate, {data}, how far",
        support={f"largest lead over the loss at {shares}": leads, "expected": rows["lead_predicted"].tolist()},
        note="Only beyond 1 / λ_max, where the top direction overshoots, does a larger rate cost the lead.",
    )  # fmt: skip


def bound_claim(rows: Table) -> Claim:
    """The step of appendix C.2, from the two smallest eigenvalues alone, over that of the crossing."""
    ratios, support = [], {}
    for row in rows.to_dict("records"):
        ratios.append(Interval(*(row["paper_bound"] / row[f"measured{end}"] for end in ("", "_high", "_low"))))
        support |= {f"{row['data']}, step by the formula": row["paper_bound"]}
        support |= {f"{row['data']}, step of the crossing": interval_at(row, "measured")}
    return Claim.of(
        "the step from which the smallest eigenvalues alone put ReGLU ahead (appendix C.2), over the crossing",
        max(ratios, key=lambda ratio: abs(ratio.value - 1)), 1.0, "number", place="corollary 4.2, late stage",
        reconstructed=True, support=support,
        note="It compares two directions of n, which hold a small part of the loss when the curves cross: it says who "
        "is ahead in the end, not when that begins.",
    )  # fmt: skip


def closed_form_claim(name: str, rows: Table) -> Claim:
    """Proposition 4.1, judged by the paper's own formula: whether it explains the mean within its noise."""
    noise = {level: (rows[level] - rows["measured"]).abs() / rows["standard_error"] for level in ("paper", "finite")}
    support = {"largest error, standard errors": noise["paper"].max()}
    support["of our formula for finite widths"] = noise["finite"].max()
    for level, words in LEVELS.items():
        support[f"{words}, %"] = 100 * (rows[level] / rows["measured"] - 1).abs().max()
    support["n, d, width, seeds"] = rows[["n", "d", "width", "seeds"]].iloc[0].tolist()
    return Claim(
        f"expected loss of {name} at every step", float(noise["paper"].max() < SURE), paper="proposition 4.1",
        rule="holds", place=f"prop. 4.1, {name}", reconstructed=True, support=support,
        note=f"Reproduced if it is less than {SURE} standard errors of the mean off at every step.",
    )  # fmt: skip
