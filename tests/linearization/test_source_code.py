"""Polynomials for other tools: C, numpy and HEIR, each equal to the polynomial."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from gatelab.errors import GatelabError
from gatelab.linearization import Polynomial, export, linearize, source_code

CASES = [("gelu", 8, 5.0), ("silu", 7, (-3.0, 9.5)), ("gelu-tanh", 31, 12.0)]


def polynomial(name: str, degree: int, interval: object) -> Polynomial:
    p = linearize(name, "minimax", degree=degree, interval=interval).polynomial
    assert p is not None
    return p


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0]} {case[1]}")
def case(request: pytest.FixtureRequest) -> tuple[Polynomial, np.ndarray]:
    p = polynomial(*request.param)
    return p, np.linspace(*p.interval, 41)


def test_numpy_is_the_polynomial(case: tuple[Polynomial, np.ndarray], tmp_path: Path) -> None:
    p, z = case
    path, names = export(p).save(tmp_path / "p.py"), {}
    exec(path.read_text(encoding="utf-8"), names)
    assert (names[p.activation.replace("-", "_")](z) == p(z)).all()


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_c_is_the_polynomial(case: tuple[Polynomial, np.ndarray], tmp_path: Path) -> None:
    p, z = case
    path = export(p).save(tmp_path / "p.c")
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", tmp_path / "p.so", path], check=True)
    function = getattr(ctypes.CDLL(str(tmp_path / "p.so")), p.activation.replace("-", "_"))
    function.restype, function.argtypes = ctypes.c_double, [ctypes.c_double]
    gap = max(abs(function(v) - p(v)) for v in z)
    assert gap <= 1e-14 * float(np.abs(p.chebyshev).sum())  # a compiler may fuse products with sums


def test_heir_gets_the_series_and_its_interval(case: tuple[Polynomial, np.ndarray], tmp_path: Path) -> None:
    p, _ = case
    text = export(p).save(tmp_path / "p.mlir").read_text(encoding="utf-8")
    series = re.search(r"typed_chebyshev_polynomial<\[(.*?)\]>", text)
    ends = re.search(r"domain_lower = (\S+) : f64, domain_upper = (\S+) : f64", text)
    assert series is not None and ends is not None
    assert tuple(map(float, series[1].split(","))) == p.chebyshev and tuple(map(float, ends.groups())) == p.interval


def test_an_unknown_language_is_refused() -> None:
    with pytest.raises(GatelabError, match="rust"):
        source_code(polynomial(*CASES[0]), "rust")
