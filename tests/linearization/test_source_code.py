"""Polynomials for other tools: C, numpy and HEIR, each executed and equal to the polynomial."""

from __future__ import annotations

import ctypes
import importlib.util
import re
import shutil
import struct
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


def heir_opt() -> Path | None:
    package = importlib.util.find_spec("heir")
    if package is None or not package.submodule_search_locations:
        return None
    tool = Path(package.submodule_search_locations[0]) / "heir-opt"
    return tool if tool.is_file() else None


def interpreted(text: str, z: float) -> float:
    """A function of arith operations on f64, as heir-opt prints it, at a number."""
    known: dict[str, float] = {"%arg0": z}
    operations = {"mulf": float.__mul__, "addf": float.__add__, "subf": float.__sub__, "divf": float.__truediv__}
    for line in text.splitlines():
        if constant := re.fullmatch(r"\s*(%\w+) = arith.constant (\S+) : f64", line):
            number = constant[2]
            if number.startswith("0x"):
                known[constant[1]] = struct.unpack(">d", bytes.fromhex(number[2:]))[0]
            else:
                known[constant[1]] = float(number)
        elif step := re.fullmatch(r"\s*(%\w+) = arith.(\w+) (%\w+), (%\w+) : f64", line):
            known[step[1]] = operations[step[2]](known[step[3]], known[step[4]])
        elif end := re.fullmatch(r"\s*return (%\w+) : f64", line):
            return known[end[1]]
    raise AssertionError(text)


@pytest.mark.skipif(heir_opt() is None, reason="needs heir_py: pip install heir_py")
def test_heir_lowers_it_to_the_polynomial(case: tuple[Polynomial, np.ndarray], tmp_path: Path) -> None:
    p, z = case
    path = export(p).save(tmp_path / "p.mlir")
    tool = heir_opt()
    assert tool is not None
    words = [tool, path, "--lower-polynomial-eval=method=pscheb min-coefficient-threshold=0"]
    lowered = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    assert "polynomial.eval" not in lowered and "arith.mulf" in lowered
    gap = max(abs(interpreted(lowered, float(v)) - p(v)) for v in z)
    assert gap <= 1e-12 * float(np.abs(p.chebyshev).sum())


def test_an_unknown_language_is_refused() -> None:
    with pytest.raises(GatelabError, match="rust"):
        source_code(polynomial(*CASES[0]), "rust")
