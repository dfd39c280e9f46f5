"""The figures of derivations, ladder and optimizer: `python docs/make_figures.py` writes them to docs/figures.

Each function makes one, from the same public calls that the pages use.
"""

from __future__ import annotations

import runpy
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import gatelab as gl
from gatelab.linearization import spectrum
from gatelab.linearization.floors import by_size
from gatelab.plotting import GRAY, NEURON_COLORS, look, looks, new_figure, save, style
from gatelab.plotting.facets import draw_figure
from gatelab.solve import rmse
from gatelab.studies import study

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "figures"
NAMES = {"mlp": "MLP", "glu": "GLU", "gqu": "GQU"}
ALL_NAMES = {**NAMES, "relu2": "relu²", "relu3": "relu³", "swiglu": "SwiGLU", "gelu": "GELU"}


def named_ticks(panel: Axes, values: Sequence[float]) -> None:
    """Ticks at these values of a logarithmic x axis."""
    panel.set_xticks(values, [f"{value:g}" for value in values])
    panel.minorticks_off()


def units() -> Figure:
    """Errors of seven units against parameters, and the poles of a SwiGLU beside those of the target."""
    figure = new_figure(8.6, 3.7)
    left, right = figure.subplots(1, 2)
    table = pd.read_csv(ROOT / "results/smooth/table.csv", comment="#")
    smooth = table.groupby(["unit", "parameters"])["test_rmse"].median()
    widths = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 50)
    study = gl.scaling([name for name in ALL_NAMES if name not in smooth.index], "paper-1d", widths, jobs=1)
    shapes = looks(list(ALL_NAMES))
    for name, said in ALL_NAMES.items():
        if name in study.units:
            sizes, errors = study.best(name, against="P")
        else:
            sizes, errors = smooth[name].index, smooth[name]
        left.loglog(sizes, errors, shapes[name].marker + "-", color=shapes[name].color, markersize=4, label=said)
    left.set(xlabel="parameters P", ylabel="test RMSE", title="error on 1/(1 + cos²πx)", xlim=(3.5, 450))
    named_ticks(left, (5, 10, 20, 50, 100, 200))
    left.legend(loc="lower left", bbox_to_anchor=(0.7, 0.0), fontsize=8)
    _poles(right)
    return figure


def _poles(panel: Axes) -> None:
    """The poles of the paper's target and of a SwiGLU of five neurons, the first pair of each neuron and the next."""
    target = gl.problem("paper-1d")
    net = gl.fit("swiglu", target, 5).network
    assert target.f is not None
    found = np.asarray(gl.theory.singularities(target.f, (-1.0, 1.0)).poles, np.complex128)
    G, g = (value.detach().numpy().ravel() for value in (net.G, net.g))
    first = -g / G + 1j * np.pi / np.abs(G)
    panel.plot([-1, 1], [0, 0], color=GRAY, linewidth=4, solid_capstyle="butt", label="interval", zorder=1)
    color = look("swiglu").color
    for sign in (1, -1):
        panel.plot(first.real, 3 * sign * first.imag, "o", color=color, fillstyle="none", markersize=5)
        panel.plot(first.real, sign * first.imag, "o", color=color, markersize=6)
        panel.plot(found.real, sign * found.imag, "+", color="black", markersize=11, markeredgewidth=1.3)
    panel.plot([], [], "+", color="black", markersize=11, markeredgewidth=1.3, label="target")
    panel.plot([], [], "o", color=color, label="SwiGLU, first poles of its 5 neurons")
    panel.plot([], [], "o", color=color, fillstyle="none", label="the next, three times as high")
    panel.set(xlabel="Re x", ylabel="Im x", xlim=(-1.9, 1.9), ylim=(-2.2, 2.2))
    panel.set_title("poles of the target and of a trained SwiGLU")
    panel.legend(loc="upper center", fontsize=8, ncols=2)


def spline_limit() -> Figure:
    """Trained networks and the free-knot limit, and the ratio of the two."""
    widths = (2, 4, 8, 16, 32, 64)
    target = gl.problem("paper-1d")
    figure = new_figure(8.0, 3.3)
    left, right = figure.subplots(1, 2)
    for name, said in NAMES.items():
        errors = np.array([gl.fit(name, target, n).test_rmse for n in widths])
        limits = gl.limit(name, target, np.array(widths))
        shape = look(name)
        left.loglog(widths, errors, shape.marker, color=shape.color, label=said)
        left.loglog(widths[1:], limits[1:], "--", color=shape.color, linewidth=1)
        right.semilogx(widths, errors / limits, shape.marker + "-", color=shape.color, label=said)
    left.set(xlabel="neurons n", ylabel="test RMSE", title="trained networks, and the limits (dashed)")
    right.set(xlabel="neurons n", ylabel="RMSE over the limit", title="approached from below", ylim=(0, 1.2))
    right.axhline(1, color=GRAY, linestyle="--", linewidth=1)
    left.legend()
    right.legend(loc="lower right")
    named_ticks(left, widths)
    named_ticks(right, widths)
    return figure


def gqu_order_four() -> Figure:
    """The construction, its prediction and training."""
    widths = (6, 11, 21, 41, 81, 161)
    target = gl.problem("paper-1d")
    figure = new_figure(5.0, 3.3)
    panel = figure.subplots()
    made = [gl.construct("gqu", target, n) for n in widths]
    errors = [rmse(m.network, target.test.x, target.test.y) for m in made]
    color = look("gqu").color
    panel.loglog(widths, errors, "D", color=color, fillstyle="none", label="constructed")
    panel.loglog(widths, [m.predicted_rmse for m in made], "-", color=GRAY, label="predicted, h⁴ rms(f⁗)/(24√630)")
    trained = [gl.fit("gqu", target, n).test_rmse for n in widths[:-1]]
    panel.loglog(widths[:-1], trained, "D", color=color, label="trained")
    panel.set(xlabel="neurons n", ylabel="test RMSE", title="order 4, written down and trained")
    named_ticks(panel, widths)
    panel.legend()
    return figure


def tangent_kernel() -> Figure:
    """The spectrum of one draw with our law, and condition numbers with both estimates."""
    n, d, m = 400, 100, 1000
    figure = new_figure(8.0, 3.3)
    left, right = figure.subplots(1, 2)
    values = gl.ntk.spectrum(gl.ntk.analytic("glu", gaussian(n, d), width=m), full=True).eigenvalues
    assert values is not None
    expected = gl.ntk.estimate("glu", n, d, m)
    left.hist(values / m, bins=60, density=True, color="#f0c9a8", label="one draw")
    x = np.linspace(0.1 * m, values[-2] * 1.05, 400)
    left.plot(x / m, expected.density(x) * m, color=look("glu").color, label="our law")
    left.axvline(expected.spike.place / m, color=look("glu").color, linestyle=":", label="its spike")
    left.set(xlabel="eigenvalue / m", ylabel="density", title=f"GLU, n = {n}, d = {d}, m = {m}")
    left.legend()
    sizes = (50, 100, 200, 300, 400)
    for name in ("mlp", "glu"):
        shape = look(name)
        found = [gl.ntk.spectrum(gl.ntk.analytic(name, gaussian(k, d), width=m)).condition for k in sizes]
        right.semilogy(sizes, found, shape.marker, color=shape.color, label=f"{NAMES[name]}, one draw")
        estimates = [gl.ntk.estimate(name, k, d, m) for k in sizes]
        right.semilogy(sizes, [e.ours.condition for e in estimates], "-", color=shape.color)
        right.semilogy(sizes, [e.paper.condition for e in estimates if e.paper], "--", color=shape.color)
    right.plot([], [], "-", color=GRAY, label="our estimate")
    right.plot([], [], "--", color=GRAY, label="the paper's")
    right.set(xlabel=f"samples n, d = {d}", ylabel="condition number", title="condition numbers", ylim=(1, 4000))
    right.legend(ncols=2, loc="upper left")
    return figure


def gaussian(n: int, d: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def dynamics() -> Figure:
    """Losses in closed form and of networks; and the eigenvalues that make them."""
    X, y, m = gaussian(60, 30), gaussian(60, 1, 1)[:, 0], 1024
    kernels = gl.ntk.analytic(["mlp", "glu"], X, width=m)
    found = gl.dynamics.crossing(kernels[0], kernels[1], y)
    lr, steps = found.lr[0], 40
    figure = new_figure(8.0, 3.3)
    left, right = figure.subplots(1, 2)
    for name, K in zip(("mlp", "glu"), kernels, strict=True):
        shape = look(name)
        curve = gl.dynamics.expected_loss(K, y, lr=lr, steps=steps)
        finite = gl.dynamics.finite_width_loss(name, X, y, m, lr, steps)
        run = gl.dynamics.train(name, X, y, m, lr, steps, seeds=16)
        low, high = run.interval()
        left.fill_between(run.steps, low, high, color=shape.color, alpha=0.2, linewidth=0)
        left.semilogy(curve.steps, curve.loss, color=shape.color, label=NAMES[name])
        left.semilogy(finite.steps, finite.loss, "--", color=shape.color)
        left.plot(run.steps[::4], run.mean[::4], shape.marker, color=shape.color, fillstyle="none")
        eigenvalues = curve.eigenvalues[::-1] / m
        right.loglog(np.arange(1, 61), eigenvalues, shape.marker, color=shape.color, label=NAMES[name])
    assert found.step is not None
    left.axvline(found.step, color=GRAY, linestyle=":", label=f"crossing, step {found.step:.1f}")
    left.set(xlabel="step", ylabel="loss", title=f"closed form, 16 networks (marks), m = {m} (dashed)")
    left.set_yticks((5, 10, 20, 40), ("5", "10", "20", "40"))
    left.minorticks_off()
    right.set(xlabel="place k", ylabel="eigenvalue / m", title="one large, or all alike")
    left.legend()
    right.legend()
    return figure


def floor() -> Figure:
    """Singular values by degree, and what polynomials leave on an interval."""
    figure = new_figure(8.0, 3.3)
    left, right = figure.subplots(1, 2)
    _degrees(left)
    z = np.linspace(-5, 5, 1001)
    exact = torch.nn.functional.gelu(torch.from_numpy(z)).numpy()
    made = {
        "Taylor": gl.linearize("gelu", "taylor", degree=8),
        "minimax": gl.linearize("gelu", "minimax", degree=8, interval=5.0),
    }
    for (name, one), color in zip(made.items(), (GRAY, NEURON_COLORS[1]), strict=True):
        assert one.polynomial is not None
        right.plot(z, one.polynomial(z) - exact, color=color, label=f"{name}, degree 8")
    bound = made["minimax"].bound().value
    right.axhline(bound, color=NEURON_COLORS[1], linestyle=":", linewidth=1, label=f"proved, ±{bound:.4f}")
    right.axhline(-bound, color=NEURON_COLORS[1], linestyle=":", linewidth=1)
    right.set(xlabel="z = w.x", ylabel="p(z) − GELU(z)", ylim=(-0.09, 0.09), title="errors on [−5, 5]")
    right.legend(loc="upper center")
    return figure


def _degrees(panel: Axes) -> None:
    """Each radial function of each degree as a step as long as its multiplicity."""
    found = spectrum("gelu", 16, 3893, w_scale=0.25)
    sigma, many, of, _ = by_size(found.blocks)
    colors: dict[int, str] = {}
    at = 0
    for value, count, block in zip(sigma, many.astype(int), of, strict=True):
        if at > 6000:
            break
        degree = found.blocks[block].degree
        label = f"degree {degree}, {count} alike" if degree not in colors else None
        color = colors.setdefault(degree, NEURON_COLORS[len(colors)])
        ends = [at + 0.7, at + count + 0.3]  # a single one is seen too
        panel.loglog(ends, [value, value], color=color, linewidth=3, solid_capstyle="butt", label=label)
        at += count
    panel.set(xlabel="place k", ylabel="singular value", title="GELU(w.x), d = 16, w ~ N(0, I/16)")
    panel.legend()


def study_figure(name: str, table: str) -> Figure:
    """The figure of a study of the ladder, from a committed table."""
    figure = study(f"ladder/{name}").figure
    assert not callable(figure)
    return draw_figure(figure, {table: pd.read_csv(ROOT / f"results/ladder/{name}-{table}.csv")})


OPTIMIZERS: dict[str, Callable[[torch.nn.Module], Any]] = {
    "Adam": lambda model: torch.optim.Adam(model.parameters(), lr=3e-3),
    "LBFGS": lambda model: torch.optim.LBFGS(
        model.parameters(), max_iter=20, history_size=50, line_search_fn="strong_wolfe", tolerance_change=0
    ),
    "LevenbergMarquardt": gl.optim.LevenbergMarquardt,
    "LevenbergMarquardt, linear": partial(gl.optim.LevenbergMarquardt, linear="head"),
}


def optim(seconds: float = 20.0) -> Figure:
    """Poisson's equation of the example: relative error by CPU seconds of training."""
    example = runpy.run_path(str(ROOT / "examples" / "pde_poisson.py"))
    laplacian, exact = example["laplacian"], example["exact"]
    points, other = torch.rand(900, 2).requires_grad_(), torch.rand(5000, 2)
    f = -laplacian(exact(points), points).detach()
    figure = new_figure(5.5, 3.6)
    panel = figure.subplots()
    for name, make in OPTIMIZERS.items():
        torch.manual_seed(0)
        model = example["Solution"](20)
        optimizer = make(model)

        def residuals(model: torch.nn.Module = model) -> torch.Tensor:
            return laplacian(model(points), points) + f

        def loss(optimizer: Any = optimizer, residuals: Callable[[], torch.Tensor] = residuals) -> torch.Tensor:
            optimizer.zero_grad()
            value = residuals().square().mean()
            value.backward()
            return value

        times, errors, passed = [], [], 0.0
        while passed < seconds:
            times.append(passed)
            errors.append(((model(other) - exact(other)).norm() / exact(other).norm()).item())
            began = time.process_time()
            for _ in range(20 if name == "Adam" else 1):
                optimizer.step(loss if name in ("Adam", "LBFGS") else residuals)
            passed += time.process_time() - began
        panel.semilogy(times, np.minimum.accumulate(errors), label=name)
    panel.set(xlabel="CPU seconds", ylabel="relative L2 error", title="Poisson's equation, 501 parameters")
    panel.legend()
    return figure


FIGURES: dict[str, Callable[[], Figure]] = {
    "units": units,
    "spline-limit": spline_limit,
    "gqu-order-four": gqu_order_four,
    "tangent-kernel": tangent_kernel,
    "dynamics": dynamics,
    "floor": floor,
    "ladder": partial(study_figure, "enwik8", "bits"),
    "gain": partial(study_figure, "gain", "differences"),
    "optim": optim,
}


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    for name in names or FIGURES:
        with style():
            print(save(FIGURES[name](), FOLDER / f"{name}.png"))


if __name__ == "__main__":
    main(sys.argv[1:])
