"""Approximations of an activation for encryption, each a `CircuitForm` fitted to a layer's pre-activations.

Pieces between breaks, as published for GELU, are p_0 + sum step_i (p_{i+1} - p_i). CKKS cannot compare encrypted
numbers, so the step is a polynomial too, the interpolant of (1 + erf) / 2 with a sharpness chosen for the data. A
circuit of L levels computes a polynomial of degree below 2^L, so no form is better than the best single polynomial of
that degree in the chosen norm; other forms can only save products.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.polynomial import chebyshev
from scipy.fft import dct
from scipy.special import erf
from torch import Tensor

from gatelab.arrays import Array
from gatelab.display import Compact
from gatelab.feedforward.gates import Activation
from gatelab.linearization.builders.least_error import minimax
from gatelab.linearization.circuits import CircuitForm, FormTerm, Series, trim
from gatelab.linearization.exchange import Published
from gatelab.linearization.polynomials import Interval, Polynomial, calibrate, from_unit, numbers, to_unit, values

CELLS = 8192  # of the histogram of pre-activations
TABLE = 2**17  # cells of the table of a form
GUARDS = (1e-4, 1e-2)  # shares of the weight of a fit that are spread over the whole interval
_SHARPNESS = (1e-2, 1e-3, 1e-5, 1e-8, 1e-12)  # approximate errors of a step's interpolant


@dataclass(frozen=True, eq=False)
class PreActivations(Compact):
    """A histogram of a layer's pre-activations: means and counts of nonempty cells, and the range with a margin."""

    z: Array
    counts: Array
    interval: Interval

    @classmethod
    def of(cls, data: Any, margin: float = 0.1) -> PreActivations:
        """The histogram of an array of any shape."""
        flat = numbers(data)
        counts, edges = np.histogram(flat, CELLS)
        sums, _ = np.histogram(flat, edges, weights=flat)
        return cls(sums[counts > 0] / counts[counts > 0], counts[counts > 0].astype(float), calibrate(flat, margin))

    def error(self, form: CircuitForm, gate: Activation) -> float:
        """The root mean square error of a form."""
        with np.errstate(over="ignore"):
            squares = np.square(form(self.z) - values(gate, self.z).numpy())
            return float(np.sqrt(self.counts @ squares / self.counts.sum()))


class TabulatedForm:
    """A form as a function of tensors: interpolated in a table of equal steps of arccos t, exact outside."""

    def __init__(self, form: CircuitForm) -> None:
        self.form = form
        self.table = torch.from_numpy(form.combined(transform)).float()
        self.differences = self.table.diff()

    def __call__(self, z: Tensor) -> Tensor:
        t = to_unit(z, self.form.interval)
        place = torch.arccos(t.clamp(-1, 1)) * (TABLE / math.pi)
        cell = place.clamp(0, TABLE - 1).long()
        table, differences = self.table.to(z.device), self.differences.to(z.device)
        out = table[cell] + (place - cell) * differences[cell]
        outside = t.abs() > 1
        if outside.any():
            out[outside] = torch.from_numpy(self.form(z[outside].double().cpu().numpy())).to(out)
        return out.to(z.dtype)


def transform(series: Series) -> Array:
    """The values of a series at t = cos(pi j / TABLE), j from 0 to TABLE."""
    c = np.zeros(TABLE + 1)
    c[: len(series)] = series
    c[1:-1] /= 2  # the transform counts the ends once
    return np.asarray(dct(c, 1), dtype=np.float64)


def interpolant(function: Any, degree: int) -> Series:
    """The Chebyshev series that interpolates a function of t."""
    return tuple(chebyshev.chebinterpolate(function, degree).tolist())


def minimax_form(gate: Activation, data: PreActivations, levels: int) -> CircuitForm:
    """The polynomial of least maximum error; from degree 127 the interpolant, whose error is a few times larger."""
    degree = 2**levels - 1
    if degree <= 100:
        return CircuitForm("minimax", data.interval, minimax(gate, degree, data.interval).chebyshev)
    series = interpolant(lambda t: values(gate, from_unit(t, data.interval)).numpy(), degree)
    return CircuitForm("minimax", data.interval, series)


def fitted_form(gate: Activation, data: PreActivations, levels: int, guard: float) -> CircuitForm:
    """The least-squares polynomial on the data, with a share `guard` of the weight spread over the interval."""
    degree = 2**levels - 1
    nodes = chebyshev.chebpts1(8 * degree)
    weights = [(1 - guard) * data.counts / data.counts.sum(), np.full(len(nodes), guard / len(nodes))]
    t, root = np.concatenate([to_unit(data.z, data.interval), nodes]), np.sqrt(np.concatenate(weights))
    exact = values(gate, from_unit(t, data.interval)).numpy()
    c = np.linalg.lstsq(chebyshev.chebvander(t, degree) * root[:, None], exact * root, rcond=None)[0]
    return CircuitForm(f"fit, guard {guard:g}", data.interval, tuple(c.tolist()))


def published_form(published: Published, gate: Activation, data: PreActivations, levels: int) -> CircuitForm:
    """A published approximation under CKKS, with steps at breaks whose sharpness minimizes the error on the data."""
    (low, high), degree = data.interval, 2 ** (levels - 1) - 1
    longest = max(map(len, published.pieces))
    powers = [np.pad(np.asarray(p, dtype=float), (0, longest - len(p))) for p in published.pieces]

    def series(powers: Array) -> Series:
        return tuple(trim(Polynomial.from_powers(powers, data.interval).chebyshev).tolist())

    base = series(powers[sum(b <= low for b in published.breaks)])  # the piece at the left end of the interval
    jumps = [(b, series(powers[i + 1] - powers[i])) for i, b in enumerate(published.breaks) if low < b < high]
    forms = []
    for off in _SHARPNESS:
        sharpness, terms = degree / (2 * math.sqrt(math.log(1 / off))), []
        for place, jump in jumps:
            center = to_unit(place, data.interval)
            step = interpolant(lambda t, a=sharpness, b=center: (1 + erf(a * (t - b))) / 2, degree)
            terms.append(FormTerm(step, jump))
        forms.append(CircuitForm(published.name, data.interval, base, tuple(terms)))
    return min(forms, key=lambda form: data.error(form, gate))


def candidates(gate: Activation, data: PreActivations, levels: int) -> list[CircuitForm]:
    """The polynomials for a layer with this number of levels."""
    return [minimax_form(gate, data, levels), *(fitted_form(gate, data, levels, guard) for guard in GUARDS)]
