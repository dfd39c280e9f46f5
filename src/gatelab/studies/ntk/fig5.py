"""Figure 5: two samples, the plane of their two outputs, and the paths that gradient descent takes in it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gatelab.arrays import Array
from gatelab.dynamics import crossing
from gatelab.ntk import Kernel, analytic
from gatelab.plotting.facets import Facets, draw_panel
from gatelab.plotting.theme import look, style
from gatelab.studies.claims import Claim
from gatelab.studies.definition import Request
from gatelab.studies.engine import Study, Table, Tables
from gatelab.studies.ntk.gaussian import NAMES, UNITS, WIDTH

INPUTS, ANGLE = 2, 70.0  # of the two samples, both of length sqrt(d)
TARGETS = np.array([1.0, 0.35])  # mostly along (1, 1), the top direction, with a part across it
SHARE = 0.05  # of 1 / lambda_max of the ReLU: small, so that the path is smooth
STOPS = (0.15, 0.5, 2.0, 12.0)  # parts of the crossing step at which panels (a) to (d) stop
SYMBOLS = {"λ_max": "lambda_max", "λ_min": "lambda_min"}
LOSSES = Facets(table="paths", x="step", y="loss", hue="unit", ylog=True, names=NAMES, smooth=True)


def two_samples() -> Array:
    angle = np.deg2rad(ANGLE)
    return INPUTS**0.5 * np.array([[1.0, 0.0], [np.cos(angle), np.sin(angle)]])


def kernels() -> dict[str, Kernel]:
    return dict(zip(UNITS, analytic(list(UNITS), two_samples(), WIDTH), strict=True))


def path(K: Array, lr: float, steps: int, start: Array) -> Array:
    """The outputs at every step, f_t = y + (I - eta K)^t (f_0 - y)."""
    values, vectors = np.linalg.eigh(K)
    t = np.arange(steps + 1)[:, None]
    along = (1 - lr * values) ** t * (vectors.T @ (start - TARGETS))
    return TARGETS + along @ vectors.T


def figure(tables: Tables) -> Figure:
    meeting = tables["crossing"].iloc[0]
    by_step = tables["paths"].pivot(index="step", columns="unit", values="loss")
    near = {"paths": tables["paths"][tables["paths"]["step"] < 3 * meeting["step"]]}
    with style():
        drawing = Figure(figsize=(12.6, 7.0), layout="constrained")
        axes = drawing.subplots(2, 3)
        for letter, panel, stop in zip("abcd", axes[:, :2].flat, stops(meeting["step"]), strict=True):
            draw_plane(panel, tables["paths"], stop)
            panel.set_title(f"({letter}) step {stop}: {NAMES[by_step.loc[stop].idxmin()]} is ahead")
        axes[0, 0].legend(loc="upper left", handlelength=1.8)
        around = f"around the crossing, step {meeting['step']:.1f}"
        for panel, shown, title in ((axes[0, 2], tables, "all steps"), (axes[1, 2], near, around)):
            draw_panel(panel, LOSSES, shown)
            panel.plot(meeting["step"], meeting["loss"], "o", color="black", markersize=9, markerfacecolor="none")
            panel.set_title(title)
        drawing.suptitle(f"Figure 5: outputs on two samples at {ANGLE:.0f}°, gradient descent from 0 (m = {WIDTH})")
    return drawing


def stops(step: float) -> list[int]:
    """The steps at which panels (a) to (d) stop, by the step at which losses cross."""
    return [max(1, round(part * step)) for part in STOPS]


def draw_plane(axes: Axes, paths: Table, stop: int) -> None:
    """The plane of both outputs, and the paths up to a step; ellipses have the semi-axes sqrt(lambda)."""
    spectra = {unit: np.linalg.eigh(kernel.numpy()) for unit, kernel in kernels().items()}
    top = max(values[-1] for values, _ in spectra.values())
    turn = np.linspace(0, 2 * np.pi, 181)[:-1]
    for unit, (values, vectors) in spectra.items():
        shape = look(unit)
        circle = 0.55 * np.sqrt(values / top) * np.column_stack((np.sin(turn), np.cos(turn)))
        axes.fill(*(TARGETS[:, None] + vectors @ circle.T), color=shape.color, alpha=0.13)
        own = paths[(paths["unit"] == unit) & (paths["step"] <= stop)]
        axes.plot(own["output_1"], own["output_2"], color=shape.color, label=NAMES[unit])
        axes.plot(*own[["output_1", "output_2"]].iloc[-1], color=shape.color, marker=shape.marker, markersize=6)
    axes.plot(*TARGETS, "*", color="#222222", markersize=10, label="targets")
    axes.set(xlim=(-0.1, 1.55), ylim=(-0.25, 0.95), aspect="equal")
    axes.set(xlabel="output on sample 1", ylabel="output on sample 2")


STUDY = Study(
    "ntk/fig5",
    "Two samples: direction-wise training",
    "ReLU converges faster along the top direction and leads at first; ReGLU overtakes and takes a more direct path.",
    position=5,
    figure=figure,
)


@STUDY.tables
def tables(request: Request) -> Tables:
    """Two paths in closed form, for full and quick runs alike."""
    made, start = kernels(), np.zeros(2)
    lr = SHARE / max(float(np.linalg.eigvalsh(kernel.numpy())[-1]) for kernel in made.values())
    meeting = crossing(made["mlp"], made["glu"], TARGETS, lr=lr, start=(start, start))
    assert meeting.step is not None and meeting.loss is not None
    paths, units = [], []
    for unit, kernel in made.items():
        outputs = path(kernel.numpy(), lr, stops(meeting.step)[-1], start)
        losses = 0.5 * np.sum((outputs - TARGETS) ** 2, axis=1)
        columns = {"output_1": outputs[:, 0], "output_2": outputs[:, 1], "loss": losses}
        paths.append(pd.DataFrame({"unit": unit, "step": np.arange(len(outputs)), **columns}))
        (least, most), vectors = np.linalg.eigh(kernel.numpy())
        along = (vectors[:, -1] @ TARGETS) ** 2 / (TARGETS @ TARGETS)
        length = np.sum(np.linalg.norm(np.diff(outputs, axis=0), axis=1)) / np.linalg.norm(TARGETS)
        row = {"unit": unit, "lambda_max": most / WIDTH, "lambda_min": least / WIDTH, "along_top": along}
        units.append(row | {"shrinks_along": lr * most, "shrinks_across": lr * least, "detour": length - 1})
    found = {"step": meeting.step, "loss": meeting.loss, "changes": len(meeting.changes), "rate": lr}
    return {"paths": pd.concat(paths), "units": pd.DataFrame(units), "crossing": pd.DataFrame([found])}


@STUDY.claims
def claims(tables: Tables) -> Iterator[Claim]:
    units, meeting = tables["units"].set_index("unit").loc[list(UNITS)], tables["crossing"].iloc[0]
    both = units.assign(condition=units["lambda_max"] / units["lambda_min"]).to_dict("list")
    (larger, smaller), (least, most) = both["lambda_max"], both["lambda_min"]
    support = {f"{name}/m of ReLU and of ReGLU": both[key] for name, key in SYMBOLS.items()}
    yield Claim(
        "largest and smallest eigenvalue of the two-sample kernel", float(larger > smaller and most > least),
        paper="ReLU has the larger λ_max, ReGLU the larger λ_min", rule="holds", place="figure 5, the ellipses",
        support=support | {"κ of ReLU and of ReGLU": both["condition"]},
        note=f"At {ANGLE:.0f}° the Gram matrix multiplies the off-diagonal entry by the cosine.",
    )  # fmt: skip
    losses = tables["paths"].pivot(index="step", columns="unit", values="loss")
    ahead, (early, _, late, _) = losses["mlp"] < losses["glu"], stops(meeting["step"])
    yield Claim(
        "who is ahead in panels (a), (b) and in (c)",
        float(ahead[early] and not ahead[late] and meeting["changes"] == 1), paper="ReLU early, ReGLU late",
        rule="holds", place="figure 5, (a), (b) and (c)",
        support={
            "step of the crossing": meeting["step"],
            "share of the residual along the top direction, squared": units.loc["mlp", "along_top"],
            "shrinking per step along it, ReLU and ReGLU": both["shrinks_along"],
            "shrinking per step across it": both["shrinks_across"],
        },
    )  # fmt: skip
    beyond, of_gated = both["detour"]
    yield Claim(
        "what ReLU's path has beyond the straight line, over what ReGLU's has", beyond / of_gated, paper=1.0,
        rule="above", place="figure 5, (d)", support={"ReLU, share of the line": beyond, "ReGLU": of_gated},
        note="Paths bend where directions shrink at different rates; equal eigenvalues would give a straight line.",
    )  # fmt: skip
