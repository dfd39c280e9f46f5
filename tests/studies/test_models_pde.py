"""The references of the differential equations, their conditions, and the study of units."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import torch
from quick_runs import Quick
from scipy.integrate import solve_ivp
from torch import Tensor

from gatelab.feedforward import Unit
from gatelab.studies.models import equations, pde
from gatelab.studies.models.equations import allen_cahn_residual, burgers_residual, cole_hopf, cosine_series, slopes

VISCOSITY, DIFFUSION = 0.01 / math.pi, 1e-4  # the usual settings
POSED = {
    "Poisson": equations.POISSON,
    "Burgers": equations.burgers(VISCOSITY, 0.01),
    "Allen-Cahn": equations.allen_cahn(DIFFUSION, 0.01),
}


def points(*columns: list[float]) -> Tensor:
    return torch.cartesian_prod(*(torch.tensor(c, dtype=torch.float64) for c in columns)).requires_grad_()


def test_burgers_is_that_of_fourier_modes() -> None:
    modes = 512
    x, k = -1 + 2 * np.arange(modes) / modes, np.pi * np.arange(modes // 2 + 1)

    def slope(t: float, u: np.ndarray) -> np.ndarray:
        return np.fft.irfft(-0.5j * k * np.fft.rfft(u * u) - VISCOSITY * k**2 * np.fft.rfft(u))

    u = solve_ivp(slope, (0, 0.25), -np.sin(np.pi * x), "DOP853", rtol=1e-12, atol=1e-13).y[:, -1]
    assert abs(u - cole_hopf(x, 0.25, VISCOSITY)).max() < 1e-10


def test_allen_cahn_is_that_of_adaptive_steps() -> None:
    modes = 512
    x, k = -1 + 2 * np.arange(2 * modes) / (2 * modes), np.pi * np.arange(modes + 1)
    fine = -1 + 2 * np.arange(2**20) / 2**20
    start = np.fft.irfft(np.fft.rfft(fine**2 * np.cos(np.pi * fine))[: modes + 1]) * 2 * modes / 2**20

    def slope(t: float, u: np.ndarray) -> np.ndarray:
        return np.fft.irfft(-DIFFUSION * k**2 * np.fft.rfft(u)) + 5 * u - 5 * u**3

    u = solve_ivp(slope, (0, 1), start, "DOP853", rtol=1e-12, atol=1e-13).y[:, -1]
    assert abs(u[modes:] - cosine_series(DIFFUSION)[-1, ::2][:-1]).max() < 1e-10 and x[modes] == 0


def test_the_residual_of_the_solution_of_burgers_is_zero() -> None:
    p = points([0.001, 0.02, 0.3, 0.9], [0.2, 0.5, 1.0])
    x, t = p.T
    y = torch.linspace(-2.5, 2.5, 2001, dtype=torch.float64)
    exponents = -torch.cos(math.pi * y) / (2 * math.pi) - (x[:, None] - y) ** 2 / (4 * t[:, None])
    u = -(torch.softmax(exponents / VISCOSITY, 1) * torch.sin(math.pi * y)).sum(1)
    right, wrong = burgers_residual(p, u, VISCOSITY).detach(), burgers_residual(p, 1.001 * u, VISCOSITY).detach()
    assert float(right.abs().max()) < 1e-8 < float(wrong.abs().max())


def test_the_residual_of_a_standing_front_of_allen_cahn_is_zero() -> None:
    p = points([0.1, 0.49, 0.5, 0.501], [0.5])
    u = torch.tanh((p[:, 0] - 0.5) * (5 / (2 * DIFFUSION)) ** 0.5) + 0 * p[:, 1]
    assert float(allen_cahn_residual(p, u, DIFFUSION).detach().abs().max()) < 1e-9


def test_the_kink_solves_the_heat_equation() -> None:
    p = points([0.9, 0.97, 0.995], [0.01, 0.3, 1.0])
    k_x, k_t = slopes(equations.kink(p, DIFFUSION), p)
    left = (k_t - DIFFUSION * slopes(k_x, p)[0]).detach()
    assert float(k_t.detach().abs().max()) > 1e-3 and float(left.abs().max()) < 1e-12


@pytest.mark.parametrize("name", POSED)
def test_any_network_has_the_initial_and_boundary_values(name: str) -> None:
    equation = POSED[name]
    network = Unit("tanh").network(7, equation.inputs, seed=3)
    axis = [1e-18, 0.3, 0.8, 1.0]
    p = points(axis, axis)
    u = equation.values(network, p)
    x, t = p.detach().T
    (ends, _), u, p = slopes(u, p).detach(), u.detach(), p.detach()
    if name == "Allen-Cahn":
        assert float((u - x**2 * torch.cos(math.pi * x))[t < 1e-9].abs().max()) < 1e-9
        assert float(ends[((x < 1e-9) | (x == 1)) & (t > 0.1)].abs().max()) < 1e-9
    else:
        edge = (x < 1e-9) | (x == 1)
        start = -torch.sin(math.pi * x)
        if name == "Poisson":
            start, edge = torch.zeros_like(x), edge | (t == 1)
        assert float(u[edge].abs().max()) < 1e-9
        assert float((u - start)[t < 1e-9].abs().max()) < 1e-9
    assert float((u - equation.solution(p, 0 * x)).abs().max()) > 1e-3


@pytest.mark.parametrize("name", POSED)
def test_points_lie_in_the_domain_and_half_of_them_are_stretched(name: str) -> None:
    uniform = torch.rand(400, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    p = POSED[name].points(uniform)
    assert p.requires_grad
    p = p.detach()
    assert float(p.min()) >= 0 and float(p.max()) <= 1
    assert torch.equal(p[200:], uniform[200:]) and torch.equal(p[:, 1], uniform[:, 1])
    known, u = POSED[name].reference()
    assert known.shape == (len(u), 2) and float(u.abs().max()) > 0.9


def test_training_lowers_the_error_and_is_repeatable() -> None:
    before, after = (pde.errors("Poisson", steps, "tanh", 1)["error"] for steps in (0, 12))
    assert after < 0.1 < before and pde.errors("Poisson", 12, "tanh", 1)["error"] == after


def test_pairs_are_those_of_welch_with_holm() -> None:
    draw = np.random.default_rng(0)
    rows = [
        ("Poisson", unit, seed, float(scale * np.exp(0.3 * draw.standard_normal())))
        for unit, scale in (("tanh", 1.0), ("sin", 1e-3), ("silu", 1.1))
        for seed in range(5)
    ]
    made = pd.DataFrame(rows, columns=["equation", "unit", "seed", "error"])
    found = {(pair["unit"], pair["other"]): pair for pair in pde.pairs(made)}
    assert len(found) == 3 and all(pair["p_holm"] >= pair["p"] for pair in found.values())
    assert found["tanh", "sin"]["p_holm"] < 0.05 < found["tanh", "silu"]["p_holm"]
    assert 500 < found["tanh", "sin"]["ratio"] < 2000


def test_the_claim_is_of_the_unit_of_least_error_and_all_have_the_same_number_of_parameters(quick: Quick) -> None:
    outcome = quick("models/pde").outcome
    (claim,), tables = outcome.claims, outcome.tables
    counts = tables["pde"].set_index("unit")["parameters"]
    assert set(counts.index) == set(pde.UNITS) and counts.to_numpy() == pytest.approx(pde.PARAMETERS, rel=0.06)
    least = tables["pde"].sort_values("error").iloc[0]
    assert claim.value == pytest.approx(least["error"]) and claim.low < least["error"] < claim.high
    assert claim.support["unit"] == pde.NAMES.get(least["unit"], least["unit"])
