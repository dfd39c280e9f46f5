"""Ways to compute an activation under encryption, all as one `CircuitForm`, fitted to a layer's pre-activations.

A form is base(t) + sum of products left(t) right(t), where base and right are series in Chebyshev polynomials of the
interval and left is one, or a composition of several. A single polynomial is a base alone. Pieces between breaks, as
published for GELU, are p_0 + sum step_i (p_{i+1} - p_i): a comparison of encrypted numbers is no operation of CKKS, and
its step is a polynomial as well, here the interpolant of (1 + erf) / 2. Its sharpness is chosen for the data, which is
kinder than what papers take: composed signs (Cheon et al., ASIACRYPT 2020), which NEXUS runs six of one after another,
each of degree 9. PUMA and BOLT compare by secret sharing, where a comparison costs rounds and no level.

Whatever a circuit of L levels computes is a polynomial of degree 2^L or less, pieces and compositions too. So no form
can pass the best single polynomial of degree 2^L in the norm that matters; what others can save is products.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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
from gatelab.linearization.builders.uniform import minimax
from gatelab.linearization.circuits import CircuitForm, FormTerm, Series, levels_of, trimmed
from gatelab.linearization.exchange import Published
from gatelab.linearization.polynomials import Interval, Polynomial, calibrate, from_unit, numbers, to_unit, values

CELLS = 8192  # of the range of pre-activations
TABLE = 2**17  # cells in which a form is looked up by a model
GUARDS = (1e-4, 1e-2)  # of the weight of a fit, spread over the whole interval
_SHARPNESS = (1e-2, 1e-3, 1e-5, 1e-8, 1e-12)  # by how much a step's interpolant is off, about


@dataclass(frozen=True, eq=False)
class PreActivations(Compact):
    """The pre-activations of a layer by narrow cells: their means and counts. All of them are counted.

    Attributes:
        z: the mean of each cell that holds some.
        counts: how many it holds.
        interval: their range, with a margin.
    """

    z: Array
    counts: Array
    interval: Interval

    @classmethod
    def of(cls, data: Any, margin: float = 0.1) -> PreActivations:
        """Those of an array of any shape."""
        flat = numbers(data)
        counts, edges = np.histogram(flat, CELLS)
        sums, _ = np.histogram(flat, edges, weights=flat)
        return cls(sums[counts > 0] / counts[counts > 0], counts[counts > 0].astype(float), calibrate(flat, margin))

    def error(self, form: CircuitForm, gate: Activation) -> float:
        """The root mean square error of a form."""
        with np.errstate(over="ignore"):
            squares = np.square(form(self.z) - values(gate, self.z).numpy())
            return float(np.sqrt(self.counts @ squares / self.counts.sum()))

    def guarded(self, guard: float, count: int) -> tuple[Array, Array]:
        """Points t of a fit, the data's and `count` more, and the roots of their weights: `guard` is the latter's."""
        nodes = np.cos(np.pi * (np.arange(count) + 0.5) / count)
        weights = np.concatenate([(1 - guard) * self.counts / self.counts.sum(), np.full(count, guard / count)])
        return np.concatenate([to_unit(self.z, self.interval), nodes]), np.sqrt(weights)


class TabulatedForm:
    """A form as a function of tensors: looked up and interpolated inside its interval, exact outside.

    The table has equal steps of the angle whose cosine is t: there a cosine transform gives all values of a series at
    once, whatever its degree.
    """

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
    c[1:-1] /= 2  # as the transform counts its ends once
    return np.asarray(dct(c, 1), dtype=np.float64)


def interpolated(ordinates: Array) -> Series:
    """The series through values at as many Chebyshev points, the greatest first, by a cosine transform."""
    series = np.asarray(dct(ordinates, 2), dtype=np.float64) / len(ordinates)
    series[0] /= 2
    return tuple(series.tolist())


def points(degree: int) -> Array:
    """The Chebyshev points of an interpolant, the greatest first."""
    return chebyshev.chebpts1(degree + 1)[::-1].copy()


def minimax_form(gate: Activation, data: PreActivations, levels: int) -> CircuitForm:
    """The polynomial of least maximum error; from degree 127 on the interpolant, which is within a few times of it."""
    degree = 2**levels - 1
    if degree > 100:
        nodes = from_unit(points(degree), data.interval)
        return CircuitForm("minimax", data.interval, interpolated(values(gate, nodes).numpy()))
    return CircuitForm("minimax", data.interval, minimax(gate, degree, data.interval).chebyshev)


def fitted_form(gate: Activation, data: PreActivations, levels: int, guard: float) -> CircuitForm:
    """The least mean square on the data, a part `guard` of the weight spread over the whole interval."""
    degree = 2**levels - 1
    t, root = data.guarded(guard, 8 * degree)
    exact = values(gate, from_unit(t, data.interval)).numpy()
    c = np.linalg.lstsq(chebyshev.chebvander(t, degree) * root[:, None], exact * root, rcond=None)[0]
    return CircuitForm(f"fit, guard {guard:g}", data.interval, tuple(c.tolist()))


def published_form(published: Published, gate: Activation, data: PreActivations, levels: int) -> CircuitForm:
    """A published approximation under CKKS alone, with so many levels in all, its steps as sharp as the data like best.

    Steps, 0 left of a break and 1 right of it, have one level less than the whole. Breaks outside the interval need
    none.
    """
    (low, high), degree = data.interval, 2 ** (levels - 1) - 1
    longest = max(map(len, published.pieces))
    powers = [np.pad(np.asarray(p, dtype=float), (0, longest - len(p))) for p in published.pieces]

    def series(powers: Array) -> Series:
        return tuple(trimmed(Polynomial.from_powers(powers, data.interval).chebyshev).tolist())

    base = series(powers[sum(b <= low for b in published.breaks)])  # the piece that the interval begins in
    jumps = [(b, series(powers[i + 1] - powers[i])) for i, b in enumerate(published.breaks) if low < b < high]
    forms = []
    for off in _SHARPNESS:
        sharpness, terms = degree / (2 * math.sqrt(math.log(1 / off))), []
        for place, jump in jumps:
            centre = (2 * place - low - high) / (high - low)
            step = interpolated((1 + erf(sharpness * (points(degree) - centre))) / 2)
            terms.append(FormTerm((step,), jump))
        forms.append(CircuitForm(published.name, data.interval, base, tuple(terms)))
    return min(forms, key=lambda form: data.error(form, gate))


def candidates(
    gate: Activation, data: PreActivations, levels: int, published: Sequence[Published] = ()
) -> list[CircuitForm]:
    """All forms of so many levels for a layer, those that cannot be made left out."""
    forms = [minimax_form(gate, data, levels), *(fitted_form(gate, data, levels, guard) for guard in GUARDS)]
    if gate.name in ("gelu", "gelu-tanh"):
        for other in published:
            if other.breaks and levels > levels_of(other.degree) and data.interval[0] < other.breaks[0]:
                forms.append(published_form(other, gate, data, levels))
    return forms
