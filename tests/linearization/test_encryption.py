"""Polynomials under encryption: circuits of least depth, parts of the error, parameters, refusals."""

from __future__ import annotations

import importlib
import importlib.util
import math

import numpy as np
import pytest
from numpy.polynomial import chebyshev

from gatelab.errors import GatelabError
from gatelab.linearization import export, linearize, parameters_for
from gatelab.linearization.circuits import CircuitForm, Number, PlainMachine, levels_of
from gatelab.linearization.encryption import LARGEST

needs_tenseal = pytest.mark.skipif(
    importlib.util.find_spec("tenseal") is None, reason="needs TenSEAL: pip install 'gatelab[encrypted]'"
)


@pytest.mark.parametrize("degree", [1, 2, 3, 4, 7, 8, 11, 15, 16, 31, 62])
@pytest.mark.parametrize("baby", [1, 2, 4, 8, 32])
def test_a_circuit_is_the_series_at_the_least_levels(degree: int, baby: int) -> None:
    c = np.random.default_rng(degree).normal(size=degree + 1)
    t, machine = np.linspace(-1, 1, 301), PlainMachine()
    result = CircuitForm("", (-1.0, 1.0), tuple(c)).run(machine, Number(t), baby)
    assert np.abs(result.value - chebyshev.chebval(t, c)).max() < 1e-11
    assert result.level == math.ceil(math.log2(degree + 1)) == levels_of(degree)
    assert CircuitForm("", (-1.0, 1.0), tuple(c)).cost.products <= machine.products


@pytest.mark.parametrize("levels", range(1, 18))
def test_parameters_are_within_the_table(levels: int) -> None:
    p = parameters_for(levels)
    assert p.levels == levels and sum(p.coeff_mod_bit_sizes) <= LARGEST[p.poly_modulus_degree] and p.security == 128
    smaller = [bits for n, bits in LARGEST.items() if n < p.poly_modulus_degree]
    assert all((bits - 2 * 60) // levels < 36 for bits in smaller)


def test_impossible_parameters_are_refused() -> None:
    with pytest.raises(GatelabError, match=r"30 levels of 36 bits.*1200 bits"):
        parameters_for(30)


@needs_tenseal
def test_the_table_is_that_of_seal() -> None:
    api = importlib.import_module("tenseal.sealapi")
    for n, bits in LARGEST.items():
        assert api.CoeffModulus.MaxBitCount(n, api.SEC_LEVEL_TYPE.TC128) == bits


@needs_tenseal
@pytest.mark.parametrize(("name", "degree", "interval"), [("silu", 6, 4.0), ("tanh", 7, 2.0), ("gelu", 7, (-2.0, 5.0))])
def test_values_under_encryption_are_within_the_bound_and_the_noise(
    name: str, degree: int, interval: float | tuple[float, float]
) -> None:
    maps = linearize(name, "minimax", degree=degree, interval=interval)
    assert maps.polynomial is not None
    z = np.random.default_rng(0).uniform(*maps.polynomial.interval, (20, 50))
    result = maps.encrypted(z)
    assert result.values.shape == z.shape and result.levels == 3 == result.parameters.levels
    assert np.abs(result.values - maps.polynomial(z)).max() == result.encryption < 1e-8
    assert result.approximation == maps.bound().value and result.excess is not None
    assert 0.9 * result.approximation < result.total <= result.approximation + result.encryption
    assert result.excess == result.total - result.approximation
    assert result.products == export(maps.polynomial).cost.products
    assert result.bytes[0] == 16 * result.parameters.poly_modulus_degree * 4 and min(result.seconds.values()) >= 0
    assert "levels=3" in repr(result) and result.document()["parameters"]["security"] == 128


@needs_tenseal
def test_more_numbers_than_slots_take_more_ciphertexts() -> None:
    maps = linearize("gelu", "minimax", degree=2, interval=2.0)
    z = np.linspace(-2, 2, 9000)
    result = maps.encrypted(z)
    assert result.parameters.slots == 4096 and result.bytes[0] == 3 * 16 * 8192 * 3
    assert maps.polynomial is not None and np.abs(result.values - maps.polynomial(z)).max() < 1e-8


def test_data_that_leave_the_range_are_counted_before_anything_is_encrypted(monkeypatch: pytest.MonkeyPatch) -> None:
    maps = linearize("silu", "minimax", degree=4, interval=3.0)
    monkeypatch.setattr("gatelab.linearization.encryption.SealMachine", None)
    with pytest.raises(GatelabError, match=r"2 of 8 numbers \(25.00%\) lie outside \[-3, 3\].*farthest at -9"):
        maps.encrypted([0, 1, 2, 3, -3, 0, 4, -9])


def test_without_tenseal_it_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str, *rest: object) -> object:
        raise ImportError(name)

    monkeypatch.setattr("gatelab.linearization.encryption.import_module", missing)
    with pytest.raises(GatelabError, match=r"pip install 'gatelab\[encrypted\]'"):
        linearize("silu", "minimax", degree=4, interval=3.0).encrypted([1.0])


def test_what_is_no_polynomial_of_one_number_is_refused() -> None:
    for maps in (linearize("swiglu", "minimax", degree=2), linearize("gelu", "optimal", d=2, m=4)):
        with pytest.raises(GatelabError, match="polynomial of one number"):
            maps.encrypted([0.0])
