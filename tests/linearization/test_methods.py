"""What every method must do, run over all that are registered: a new entry is tested at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gatelab.errors import GatelabError
from gatelab.linearization import METHODS, Linearization, Maps, linearize, methods
from gatelab.linearization.registry import find_method

D = 3
# What options that methods cannot do without are given here, and those that make them quick.
NEEDED: dict[str, Any] = {"m": 40, "data": np.linspace(-2, 2, 200), "reference": [0.0] * D}
QUICK = {"steps": 5}
# The method that trains takes longer than all others together: most of its tests are left to make test-all.
QUICKER = [pytest.param(name, marks=pytest.mark.slow) if name == "learned" else name for name in methods()]


def rows(n: int, seed: int, d: int = D) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) / 2


def options_of(name: str, **others: Any) -> dict[str, Any]:
    takes = find_method(name).options
    needed = {option: NEEDED[option] for option, p in takes.items() if p.default is p.empty}
    return {**needed, **{k: v for k, v in QUICK.items() if k in takes}, **others}


def built(name: str, gate: Any = "gelu", d: int = D, **others: Any) -> Linearization:
    return linearize(gate, name, d=d, **options_of(name, **others))


@pytest.mark.parametrize("name", QUICKER)
def test_maps_have_their_shapes_and_their_product(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    maps, W, X = built(name), rows(5, 0), rows(14, 1).reshape(2, 7, D)
    phi, psi = maps.phi(W), maps.psi(X)
    assert phi.shape == (5, maps.m) and psi.shape == (2, 7, maps.m)
    whole = psi @ phi.mT
    for chunk in (1, 300, 2**24):
        monkeypatch.setattr("gatelab.linearization.linearizations.CHUNK", chunk)
        torch.testing.assert_close(maps.product(W, X), whole, atol=1e-10, rtol=1e-8)
    assert maps.product(W.float(), X.float()).dtype == torch.float32
    assert name in str(maps) and f"m = {maps.m}" in str(maps)


@pytest.mark.parametrize("name", QUICKER)
def test_gated_units_are_the_gate_times_a_factor(name: str) -> None:
    G, U, X = rows(4, 0), rows(4, 1), rows(6, 2)
    gated, gate = built(name, "geglu"), built(name)
    torch.testing.assert_close(gated.product((G, U), X), gate.product(G, X) * (X @ U.T), atol=1e-10, rtol=1e-8)


@pytest.mark.parametrize("name", QUICKER)
def test_the_error_is_bounded_and_falls(name: str) -> None:
    """On short rows, where |w.x| is far below 1: with the degree, or with the number of draws that are averaged."""
    W, X = rows(40, 3) / 2, rows(40, 4) / 2
    maps = built(name)
    error = maps.error(W=W, X=X)
    assert error.floor is not None and error.floor <= error.rmse * (1 + 1e-9) and error.relative < 2
    if maps.polynomial is not None:
        coarse, fine = (built(name, degree=degree).error(W=W, X=X).rmse for degree in (2, 10))
        assert fine < 0.5 * coarse
    elif error.relative > 0.5:
        products = torch.stack([built(name, seed=seed).product(W, X) for seed in range(16)])
        assert float((products.mean(0) - maps.exact(W, X)).square().mean().sqrt()) < 0.5 * error.rmse


@pytest.mark.slow
@pytest.mark.parametrize("name", methods())
def test_what_is_drawn_is_drawn_again_from_the_same_seed(name: str) -> None:
    W, X = rows(3, 0), rows(3, 1)
    first, again = built(name), built(name)
    assert torch.equal(first.product(W, X), again.product(W, X))
    if "seed" in find_method(name).options:
        assert not torch.equal(built(name, seed=1).product(W, X), first.product(W, X))


@pytest.mark.parametrize("name", QUICKER)
def test_options_are_checked_and_bad_input_is_refused_with_a_way_out(name: str) -> None:
    with pytest.raises(GatelabError, match=f"no option of {name} is called 'nonsense'"):
        built(name, nonsense=1)
    for option, p in find_method(name).options.items():
        if p.default is p.empty:
            without = {k: v for k, v in options_of(name).items() if k != option}
            with pytest.raises(GatelabError, match=f"{name} needs {option}=..."):
                linearize("gelu", name, d=D, **without)
    wrong: dict[str, Any] = {"m": 0, "degree": -1, "seed": -1, "radius": 0.0, "scale": -1.0, "w_scale": 0.0}
    wrong |= {"data": [], "reference": [np.nan] * D, "interval": (1.0, -1.0), "steps": 0}
    for option in find_method(name).options.keys() & wrong.keys():
        with pytest.raises(GatelabError, match=r"give|reference|finite"):
            built(name, **{option: wrong[option]})
    with pytest.raises(GatelabError, match="whole number of inputs"):
        built(name, d=0)
    with pytest.raises(GatelabError):
        built(name).phi(rows(2, 0, D + 1))


def test_an_entry_is_enough(monkeypatch) -> None:
    def constant_maps(activation, d, *, level=0.25):
        return Maps(lambda W: level * torch.ones_like(W[..., :1]), lambda X: torch.ones_like(X[..., :1]), 1, d)

    monkeypatch.setitem(METHODS, "constant", constant_maps)
    assert methods()[5] == "constant" and not find_method("Constant").polynomial
    for d in (2, None):
        assert float(linearize("gelu", "constant", d=d, level=0.5).product(torch.ones(1, 2), torch.ones(1, 2))) == 0.5
    with pytest.raises(GatelabError, match="did you mean 'constant'"):
        linearize("gelu", "konstant")
