"""The form in which errors fall, on curves whose form is known, and rates predicted from poles."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ellipk

import gatelab as gl
from gatelab.scaling_laws import decay, predicted_rate
from gatelab.theory import green, singularities, smooth_error
from gatelab.theory.smooth_gates import column_rate

SIZES = 5.0 * np.arange(1, 13) + 1
CURVES = {
    "power": 3 * SIZES**-4.0,
    "exponential": 2 * np.exp(-0.5 * SIZES),
    "root-exponential": np.exp(-3 * np.sqrt(SIZES)),
}


@pytest.mark.parametrize("form", CURVES)
def test_the_form_of_exact_curves_is_found(form: str) -> None:
    found = decay(SIZES, CURVES[form])
    assert found.form == form and found.accepted == (form,)
    assert found.rate.value == pytest.approx({"power": 4, "exponential": 0.5, "root-exponential": 3}[form])


@pytest.mark.parametrize("form", CURVES)
def test_the_true_form_is_rejected_as_often_as_the_level_says(form: str) -> None:
    noise = np.random.default_rng(1).standard_normal((200, len(SIZES)))
    found = [decay(SIZES, CURVES[form] * np.exp(0.5 * z)) for z in noise]
    assert np.mean([form not in f.accepted for f in found]) < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 200)
    truth = decay(SIZES, CURVES[form]).rate.value
    covered = [f.rates[form].low < truth < f.rates[form].high for f in found]
    assert np.mean(covered) > 0.95 - 3 * np.sqrt(0.05 * 0.95 / 200)


def test_a_power_is_rejected_for_an_exponential_curve() -> None:
    noise = np.random.default_rng(2).standard_normal((50, len(SIZES)))
    found = [decay(SIZES, CURVES["exponential"] * np.exp(0.5 * z)) for z in noise]
    assert all("power" not in f.accepted for f in found)


@pytest.mark.parametrize(
    ("f", "decline", "poles"),
    [
        (lambda x: 1 / (1 + 25 * x**2), "exponential", [0.2j]),
        (lambda x: np.tanh(10 * x), "exponential", [0.05j * np.pi, 0.15j * np.pi]),
        (lambda x: 1 / ((x - 0.5) ** 2 + 0.04) + 1 / ((x + 0.6) ** 2 + 0.09), "exponential", [0.5 + 0.2j, -0.6 + 0.3j]),
        (np.abs, "root-exponential", []),
        (lambda x: np.sqrt(1 + x), "root-exponential", []),
        (lambda x: np.exp(np.sin(3 * x)), "faster", []),
        (lambda x: np.cos(20 * x), "faster", []),
        (np.square, "faster", []),
    ],
)
def test_singularities_of_known_functions(f, decline: str, poles: list[complex]) -> None:
    found = singularities(f, (-1.0, 1.0))
    assert found.decline == decline
    np.testing.assert_allclose(found.poles[: len(poles)], poles, atol=1e-3)


def test_polynomials_converge_at_the_rate_of_greens_function() -> None:
    """The twin: Chebyshev coefficients of 1 / (x - 2), exactly geometric."""
    c = np.polynomial.chebyshev.chebinterpolate(lambda x: 1 / (x - 2), 25)
    assert np.log(c[4] / c[5]) == pytest.approx(float(green(2.0, (-1.0, 1.0))), rel=1e-6)


def test_the_predicted_error_is_the_best_of_all_numbers_of_removed_poles() -> None:
    """The twin has the column 0.2i, 0.6i, 1.0i, ... of Runge's function by hand, with capacities in closed form."""
    rates = [rays_of_one_column(h) for h in (0.2, 0.6, 1.0, 1.4, 1.8)]
    for n in (1, 2, 3, 4, 5):
        by_hand = max(rate * (4 * n + 1 - 4 * k) for k, rate in enumerate(rates))
        assert -np.log(smooth_error((0.2j,), (-1.0, 1.0), 1, np.array([n]))[0]) == pytest.approx(by_hand, rel=0.01)


def rays_of_one_column(height: float) -> float:
    """1 / cap of [-1, 1] and ±i[height, ∞): Teichmüller's ring in x², of which the plane is a double cover."""
    m = 1 / (1 + height**2)
    return float(np.pi / 2 * ellipk(1 - m) / ellipk(m))


@pytest.mark.parametrize("height", [0.1, 0.2, 0.6, 2.0])
def test_capacities_agree_with_the_closed_form(height: float) -> None:
    assert column_rate(np.array([1j * height])) == pytest.approx(rays_of_one_column(height), rel=0.01)


def test_a_real_pole_has_the_rate_of_polynomials_and_one_of_two_columns_counts_once() -> None:
    assert column_rate(np.array([-1.2 + 0j, 3j])) == pytest.approx(float(green(1.2, (-1.0, 1.0))))
    assert column_rate(np.array([0.2j, 0.6j])) == column_rate(np.array([0.2j]))
    assert column_rate(np.array([0.2j, 1.0 + 0.2j])) < column_rate(np.array([0.2j]))


def test_refusals_name_the_way_out() -> None:
    with pytest.raises(gl.GatelabError, match="5 sizes"):
        decay(SIZES[:4], CURVES["power"][:4])
    with pytest.raises(gl.GatelabError, match="silu or sigmoid"):
        predicted_rate("geglu", "paper-1d", [1, 2])
    with pytest.raises(gl.GatelabError, match="no poles"):
        predicted_rate("swiglu", "exp(sin(3*x))", [1, 2])


def test_measured_and_predicted_rates_agree_on_the_papers_target() -> None:
    study = gl.scaling("swiglu", gl.problem("paper-1d", n=2000), range(3, 8), jobs=1)
    found = study.decay("swiglu")
    assert found.form == "exponential"
    assert found.rates["exponential"].value == pytest.approx(predicted_rate("swiglu", "paper-1d", range(3, 8)), rel=0.2)
