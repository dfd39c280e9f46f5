"""The figures of derivations, ladder and optimizer: `python docs/make_figures.py [NAME ...]` writes docs/figures."""

from __future__ import annotations

import math
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure

import gatelab as gl
from gatelab.linearization import spectrum
from gatelab.linearization.floors import by_size
from gatelab.plotting import save, style
from gatelab.plotting.facets import Facets, Overlay, draw_figure
from gatelab.solve import rmse
from gatelab.studies import study

ROOT = Path(__file__).parents[1]
LOG: dict[str, Any] = {"xlog": True, "ylog": True}
gaussian = partial(torch.randn, dtype=torch.float64)


def units() -> Figure:
    smooth = pd.read_csv(ROOT / "results/smooth/table.csv", comment="#").query("unit in ('gelu', 'swiglu')")
    smooth = smooth.groupby(["unit", "parameters"], as_index=False)["test_rmse"].median()
    widths = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 50]
    others = gl.scaling(["mlp", "glu", "gqu", "relu2", "relu3"], "paper-1d", widths, jobs=1)
    target, net = gl.problem("paper-1d"), gl.fit("swiglu", "paper-1d", 5).network
    G, g = net.G.detach().numpy().ravel(), net.g.detach().numpy().ravel()
    first, high = -g / G, 1j * np.pi / np.abs(G)
    places = {"second poles, three times as high": first + 3 * high, "first poles of 5 SwiGLU neurons": first + high}
    places["poles of the target"] = np.asarray(gl.theory.singularities(target.f, (-1.0, 1.0)).poles, np.complex128)
    parts = [{"Re x": p.real, "Im x": sign * p.imag, "of": name} for name, p in places.items() for sign in (1, -1)]
    tables = {"errors": pd.concat([others.table(), smooth]), "poles": pd.concat(map(pd.DataFrame, parts))}
    left = Facets("parameters", "test_rmse", "unit", ylabel="test RMSE", title="error on 1/(1 + cos²πx)", **LOG)
    figure = draw_figure([left, Facets("Re x", "Im x", "of", table="poles", points=True, title="poles")], tables)
    for mark in figure.findobj(lambda artist: getattr(artist, "get_marker", str)() == "<"):
        mark.set(marker="o", markerfacecolor="none", markersize=9)  # rings around the poles that hit the target's
    return figure


def gqu_order_four() -> Figure:
    widths, target = (6, 11, 21, 41, 81), gl.problem("paper-1d")
    made = [gl.construct("gqu", target, n) for n in widths]
    table = pd.DataFrame({"n": widths, "predicted": [m.predicted_rmse for m in made]})
    table["constructed"] = [rmse(m.network, target.test.x, target.test.y) for m in made]
    table["trained"] = [gl.fit("gqu", target, n).test_rmse for n in widths]
    table = table.melt(["n", "predicted"], ["constructed", "trained"], "network", "test RMSE")
    predicted = Overlay("predicted", "predicted, h⁴ rms(f⁗)/(24√630)", hue=False)
    return draw_figure(Facets("n", "test RMSE", "network", points=True, lines=(predicted,), **LOG), {"errors": table})


def tangent_kernel() -> Figure:
    d, m, spectra, rows = 100, 1000, [], []
    for unit in ("mlp", "glu"):
        for n in (50, 100, 200, 300, 400):
            measured = gl.ntk.spectrum(gl.ntk.analytic(unit, gaussian(n, d), width=m), full=True)
            law = gl.ntk.estimate(unit, n, d, m)
            rows.append((unit, n, measured.condition, law.ours.condition, getattr(law.paper, "condition", math.nan)))
        x, density = measured.density(log=True)
        expected = law.density(x) * x * math.log(10)
        spectra.append(pd.DataFrame({"unit": unit, "eigenvalue": x, "share per decade": density, "law": expected}))
    lines = (Overlay("ours", "our estimate", "solid"), Overlay("paper", "the paper's"))
    sizes = pd.DataFrame(rows, columns=["unit", "n", "condition", "ours", "paper"])
    left = Facets("eigenvalue", "share per decade", "unit", smooth=True, xlog=True, lines=(Overlay("law", "our law"),))
    right = Facets("n", "condition", "unit", table="sizes", points=True, ylog=True, lines=lines, title="d = 100")
    return draw_figure([left, right], {"": pd.concat(spectra), "sizes": sizes})


def dynamics() -> Figure:
    X, y, m, names = gaussian(60, 30), gaussian(60), 1024, ["mlp", "glu"]
    kernels = gl.ntk.analytic(names, X, width=m)
    lr, losses, values = gl.dynamics.crossing(*kernels, y).lr[0], [], []
    for name, K in zip(names, kernels, strict=True):
        run = gl.dynamics.train(name, X, y, m, lr, 40, seeds=16)
        curve = gl.dynamics.expected_loss(K, y, lr=lr, steps=run.steps)
        low, high = run.interval()
        columns = {"step": run.steps, "loss": run.mean, "loss_low": low, "loss_high": high, "closed form": curve.loss}
        losses.append(pd.DataFrame({"unit": name, **columns}))
        values.append(pd.DataFrame({"unit": name, "k": range(1, 61), "eigenvalue / m": curve.eigenvalues[::-1] / m}))
    form = (Overlay("closed form", "closed form"),)
    left = Facets("step", "loss", "unit", points=True, ylog=True, lines=form, title="16 networks and the closed form")
    right = Facets("k", "eigenvalue / m", "unit", table="values", points=True, **LOG)
    return draw_figure([left, right], {"": pd.concat(losses), "values": pd.concat(values)})


def floor() -> Figure:
    blocks = spectrum("gelu", 16, 3893, w_scale=0.25).blocks
    sigma, many, of, _ = by_size(blocks)
    steps = pd.DataFrame({"singular value": sigma, "degree": [f"degree {blocks[b].degree}" for b in of]})
    steps = steps.loc[steps.index.repeat(many.astype(int))].assign(k=range(1, int(many.sum()) + 1))
    z, parts = np.linspace(-5, 5, 1001), []
    for method, options in {"taylor": {}, "minimax": {"interval": 5.0}}.items():
        maps = gl.linearize("gelu", method, degree=8, **options)
        error = maps.polynomial(z) - torch.nn.functional.gelu(torch.from_numpy(z)).numpy()
        parts.append(pd.DataFrame({"z": z, "error": error, "method": method}))
    bound = maps.bound().value
    left = Facets("k", "singular value", "degree", points=True, title="GELU(w.x), d = 16, w ~ N(0, I/16)", **LOG)
    proved = {f"proved, ±{bound:.4f}": bound, "": -bound}
    right = Facets("z", "error", "method", table="errors", smooth=True, levels=proved, title="p(z) − GELU(z), degree 8")
    errors = pd.concat(parts).query("abs(error) < 0.09")
    return draw_figure([left, right], {"": steps[steps.k < 6000], "errors": errors})


def optim() -> Figure:
    table = pd.read_csv(ROOT / "results/optim/levenberg-marquardt.csv").set_index(["fit", "method"])
    errors = table.filter(like="rmse after").groupby(["fit", "method"], sort=False).median()
    errors.columns = [float(name.split()[2]) for name in errors]
    long = errors.melt(var_name="CPU seconds", value_name="test RMSE", ignore_index=False).reset_index()
    fits = {"fit": ["Runge", "sines in 2-D", "Friedman 1", "borehole"]}
    facets = Facets("CPU seconds", "test RMSE", "method", col="fit", wrap=2, where=fits, smooth=True, **LOG)
    return draw_figure(facets, {"errors": long})


def ladder(name: str, *tables: str) -> Figure:
    made = {table: pd.read_csv(ROOT / f"results/ladder/{name}-{table}.csv") for table in tables}
    return draw_figure(study(f"ladder/{name}").figure, made)


FIGURES = {f.__name__.replace("_", "-"): f for f in (units, gqu_order_four, tangent_kernel, dynamics, floor, optim)} | {
    "spline-limit": lambda: gl.scaling(["mlp", "glu", "gqu"], "paper-1d", [2, 4, 8, 16, 32, 64], jobs=1).plot(),
    "ladder": partial(ladder, "enwik8", "bits"),
    "gain": partial(ladder, "gain", "differences", "changes"),
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    for name in sys.argv[1:] or FIGURES:
        torch.manual_seed(0)
        with style():
            print(save(FIGURES[name](), ROOT / "docs" / "figures" / f"{name}.png"))
