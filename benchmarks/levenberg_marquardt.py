"""Ten fits by Levenberg-Marquardt, ours and others', and by first-order methods: test RMSE within equal CPU seconds.

Every method starts with the same network (tanh, torch's own initial parameters) in float64; a seed is of the network
and of the rows. Peers: `pip install torch-levenberg-marquardt==1.2.3 pytorch-minimize==0.1.0`. CPU seconds are of one
thread without the evaluation of errors. Runs that the record has are not repeated.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.optimize import least_squares
from torch import Tensor, nn

import gatelab as gl
from benchmarks.harness import Row, Table, continued, facts

SECONDS, SEEDS = 4.0, 3
LAST = f"rmse after {SECONDS:.3g} s"
# Errors are recorded after these seconds.
GRID = [SECONDS * 2 ** (-k / 4) for k in reversed(range(21))]
RECORD = Path(__file__).parents[1] / "results" / "optim" / "levenberg-marquardt.csv"
Function = Callable[[Tensor], Tensor]
EXACT: dict[str, Any] = {"xtol": 1e-15, "ftol": 1e-15, "gtol": 1e-15, "max_nfev": 10**6}  # ends by the clock


def _friedman1(x: Tensor) -> Tensor:
    return torch.sin(np.pi * x[:, 0] * x[:, 1]) + 2 * (x[:, 2] - 0.5) ** 2 + x[:, 3] + 0.5 * x[:, 4]


def _peaks(x: Tensor) -> Tensor:
    a, b = 6 * x[:, 0] - 3, 6 * x[:, 1] - 3
    hills = 3 * (1 - a) ** 2 * torch.exp(-(a**2) - (b + 1) ** 2) - torch.exp(-((a + 1) ** 2) - b**2) / 3
    return (hills - 10 * (a / 5 - a**3 - b**5) * torch.exp(-(a**2) - b**2)) / 3


def _ishigami(x: Tensor) -> Tensor:
    z = np.pi * (2 * x - 1)
    return torch.sin(z[:, 0]) + torch.sin(z[:, 1]) ** 2 + 0.1 * z[:, 2] ** 4 * torch.sin(z[:, 0]) / 10


def _borehole(x: Tensor) -> Tensor:
    low = torch.tensor([0.05, 100, 63070, 990, 63.1, 700, 1120, 9855])
    high = torch.tensor([0.15, 50000, 115600, 1110, 116, 820, 1680, 12045])
    rw, r, tu, hu, tl, hl, length, kw = (low + (high - low) * x).T
    ratio = torch.log(r.clamp_min(1e3) / rw)
    return 2 * np.pi * tu * (hu - hl) / (ratio * (1 + 2 * length * tu / (ratio * rw**2 * kw) + tu / tl)) / 50


# Name, function on the unit cube, layers, rows.
FITS: dict[str, tuple[Function, tuple[int, ...], int]] = {
    "sine and exponential": (lambda x: torch.sin(6 * x[:, 0]) * torch.exp(x[:, 0]), (1, 16, 1), 400),
    "Runge": (lambda x: 1 / (1 + 25 * (2 * x[:, 0] - 1) ** 2), (1, 30, 1), 500),
    "chirp": (lambda x: torch.sin(20 * x[:, 0] ** 2), (1, 20, 20, 1), 800),
    "peaks": (_peaks, (2, 40, 1), 1500),
    "sines in 2-D": (lambda x: torch.sin(4 * x[:, 0]) * torch.sin(4 * x[:, 1]), (2, 20, 20, 1), 1500),
    "Ishigami": (_ishigami, (3, 20, 20, 1), 2000),
    "product in 4-D": (lambda x: torch.prod(0.5 + x, 1), (4, 16, 16, 1), 2000),
    "Friedman 1": (_friedman1, (5, 30, 30, 1), 3000),
    "radial in 6-D": (lambda x: torch.exp(-(x - 0.5).square().sum(1)), (6, 66, 66, 1), 1000),
    "borehole": (_borehole, (8, 32, 32, 1), 3000),
}


@dataclass
class Clock:
    """CPU seconds of a method, and the test RMSE of the smallest training loss, about every twentieth of the time."""

    test: Callable[[nn.Module], float]
    curve: list[tuple[float, float]] = field(default_factory=list)
    best: float = float("inf")
    began: float = field(default_factory=time.process_time)  # later by what tests have taken

    def look(self, model: nn.Module, loss: float) -> None:
        now = time.process_time()
        seconds = now - self.began
        if seconds > SECONDS:
            raise TimeoutError
        if loss < self.best:
            self.best = loss
            if not self.curve or seconds > 1.05 * self.curve[-1][0]:
                self.curve.append((seconds, self.test(model)))
        self.began += time.process_time() - now


def ours(model: nn.Sequential, x: Tensor, y: Tensor, clock: Clock, linear: str | None = None) -> None:
    optimizer = gl.optim.LevenbergMarquardt(model, linear=linear)
    while optimizer.status is gl.Status.BUDGET:
        clock.look(model, optimizer.step(lambda: model(x) - y))


def torch_levenberg_marquardt(model: nn.Module, x: Tensor, y: Tensor, clock: Clock) -> None:
    module, stop = import_module("torch_levenberg_marquardt.training").LevenbergMarquardtModule(model), False
    while not stop:
        _, _, stop, _ = module.training_step(x, y)
        with torch.no_grad():
            clock.look(model, float((model(x) - y).square().mean()))


def named(model: nn.Module, theta: Tensor) -> dict[str, Tensor]:
    """Flat parameters by name."""
    parts = theta.split([p.numel() for p in model.parameters()])
    return {name: part.view_as(p) for (name, p), part in zip(model.named_parameters(), parts, strict=True)}


def residuals_of(model: nn.Module, x: Tensor, y: Tensor, clock: Clock) -> tuple[Function, Tensor]:
    """Residuals as a function of flat parameters, which are put into the model, and its present parameters."""

    def residuals(theta: Tensor) -> Tensor:
        r = (torch.func.functional_call(model, named(model, theta), (x,)) - y).flatten()
        nn.utils.vector_to_parameters(theta.detach(), model.parameters())
        clock.look(model, float(r.detach().square().mean()))
        return r

    return residuals, nn.utils.parameters_to_vector(model.parameters()).detach()


def scipy_least_squares(model: nn.Module, x: Tensor, y: Tensor, clock: Clock) -> None:
    residuals, start = residuals_of(model, x, y, clock)

    @torch.no_grad()
    def values(theta: np.ndarray) -> np.ndarray:
        return residuals(torch.from_numpy(theta)).numpy()

    def jacobian(theta: np.ndarray) -> np.ndarray:
        single = torch.func.grad(lambda values, row: torch.func.functional_call(model, values, (row,)).sum())
        rows = torch.vmap(single, (None, 0))(named(model, torch.from_numpy(theta)), x)
        return torch.cat([rows[name].flatten(1) for name, _ in model.named_parameters()], 1).numpy()

    least_squares(values, start.numpy(), jacobian, **EXACT)


def pytorch_minimize(model: nn.Module, x: Tensor, y: Tensor, clock: Clock) -> None:
    import_module("torchmin").least_squares(*residuals_of(model, x, y, clock), **EXACT)


def descended(optimizer: torch.optim.Optimizer, model: nn.Module, x: Tensor, y: Tensor, clock: Clock) -> None:
    """A step on the mean square."""

    def closure() -> float:
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        clock.look(model, loss.item())
        return loss.item()

    optimizer.step(closure)


def lbfgs(model: nn.Module, x: Tensor, y: Tensor, clock: Clock) -> None:
    endless: dict[str, Any] = {"max_iter": 10**9, "max_eval": 10**9, "tolerance_grad": 0, "tolerance_change": 0}
    optimizer = torch.optim.LBFGS(model.parameters(), history_size=50, line_search_fn="strong_wolfe", **endless)
    descended(optimizer, model, x, y, clock)


def adam(model: nn.Module, x: Tensor, y: Tensor, clock: Clock) -> None:
    """The learning rate falls from 1e-2 to 1e-4 within the time."""
    optimizer = torch.optim.Adam(model.parameters())
    while True:
        share = min(1.0, (time.process_time() - clock.began) / SECONDS)
        optimizer.param_groups[0]["lr"] = 10 ** (-2 - 2 * share)
        descended(optimizer, model, x, y, clock)


METHODS = {
    "gl.optim": ours,
    "gl.optim, linear": lambda model, x, y, clock: ours(model, x, y, clock, str(len(model) - 1)),  # the last layer
    "torch-levenberg-marquardt": torch_levenberg_marquardt,
    "scipy least_squares": scipy_least_squares,
    "pytorch-minimize": pytorch_minimize,
    "torch LBFGS": lbfgs,
    "torch Adam": adam,
}
PEERS = {"torch-levenberg-marquardt": "torch_levenberg_marquardt.training", "pytorch-minimize": "torchmin"}


def measured(fit: str, seed: int, method: str) -> Iterator[Row]:
    """The smallest test RMSE of one run after each time of the grid."""
    function, layers, rows = FITS[fit]
    x, other = torch.rand(2 * rows, layers[0], generator=torch.Generator().manual_seed(1 + seed)).split(rows)
    y, expected = function(x)[:, None], function(other)[:, None]

    @torch.no_grad()
    def error(model: nn.Module) -> float:
        return float((model(other) - expected).square().mean().sqrt())

    if method in PEERS:
        import_module(PEERS[method])  # not within its time
    torch.manual_seed(seed)
    parts = [part for a, b in pairwise(layers) for part in (nn.Linear(a, b), nn.Tanh())]
    model, clock = nn.Sequential(*parts[:-1]), Clock(error)
    try:
        METHODS[method](model, x, y, clock)
    except TimeoutError:
        pass
    except (RuntimeError, ValueError) as problem:
        print(f"{fit}, seed {seed}, {method}: {problem}")
    after = {t: min((e for s, e in clock.curve if s <= t and np.isfinite(e)), default=float("inf")) for t in GRID}
    columns = {f"rmse after {t:.3g} s": f"{e:.3e}" for t, e in after.items()}
    yield {"fit": fit, "seed": seed, "method": method, **columns, **facts("cpu")}


def run() -> Iterator[Table]:
    torch.set_default_dtype(torch.float64)
    cells = [(fit, seed, method) for seed, fit, method in product(range(SEEDS), FITS, METHODS)]
    record = continued(RECORD, ["fit", "seed", "method"], cells, measured)
    medians = record.astype({LAST: float}).groupby(["fit", "method"], sort=False)[LAST].median()
    rows = medians.unstack(sort=False).reset_index().to_dict("records")
    yield f"Ten fits, median test RMSE of {SEEDS} seeds within {SECONDS:g} CPU seconds", rows, ""
