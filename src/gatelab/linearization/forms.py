"""Ways to compute an activation under encryption, all in one shape, and what each costs by one and the same count.

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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.polynomial import chebyshev
from scipy.fft import dct
from scipy.special import erf
from torch import Tensor

from gatelab.arrays import Array
from gatelab.display import counted, one_line
from gatelab.errors import GatelabError
from gatelab.feedforward.gates import Activation
from gatelab.linearization.builders.uniform import minimax
from gatelab.linearization.encryption import ChebyshevCircuit, Cost, Machine, Number, PlainMachine, levels_of
from gatelab.linearization.exchange import Published
from gatelab.linearization.polynomials import Interval, Polynomial, calibrate, numbers, values

Series = tuple[float, ...]
CELLS = 8192  # of the range of pre-activations
TABLE = 2**17  # cells in which a form is looked up by a model
GUARDS = (1e-4, 1e-2)  # of the weight of a fit, spread over the whole interval
_SHARPNESS = (1e-2, 1e-3, 1e-5, 1e-8, 1e-12)  # by how much a step's interpolant is off, about
_CLAMPED_DEGREE = 8  # of that polynomial: outside it grows as this power, and steps must bring that to 0
_CLAMPED_AT = 4.0  # where the clamped polynomial ends, on both sides


@dataclass(frozen=True, eq=False)
class PreActivations:
    """The pre-activations of a layer by narrow cells: their means and counts. All of them are counted.

    Attributes:
        z: the mean of each cell that holds some.
        counts: how many it holds.
        interval: their range, with a margin.
    """

    z: Array
    counts: Array
    interval: Interval

    def __repr__(self) -> str:
        return one_line(self, f"{int(self.counts.sum())} numbers, for [{self.interval[0]:.4g}, {self.interval[1]:.4g}]")

    @classmethod
    def of(cls, data: Any, margin: float = 0.1) -> PreActivations:
        """Those of an array of any shape."""
        flat = numbers(data)
        counts, edges = np.histogram(flat, CELLS)
        sums, _ = np.histogram(flat, edges, weights=flat)
        return cls(sums[counts > 0] / counts[counts > 0], counts[counts > 0].astype(float), calibrate(flat, margin))

    def rms(self, errors: Array) -> float:
        """The root mean square of errors, one for each cell."""
        with np.errstate(over="ignore"):
            return float(np.sqrt(self.counts @ np.square(errors) / self.counts.sum()))


@dataclass(frozen=True)
class FormTerm:
    """left(t) right(t), left being a composition, innermost first."""

    left: tuple[Series, ...]
    right: Series

    def __post_init__(self) -> None:
        if len(self.right) < 2 or any(len(series) < 2 for series in self.left):
            raise GatelabError("a factor of a product is a plain number; put it into the other factor")


@dataclass(frozen=True)
class CircuitForm:
    """base(t) + sum left(t) right(t), t in [-1, 1] over the interval.

    Attributes:
        method: how it was made.
        interval: where it holds.
        base: coefficients of T_0, T_1, ...
        terms: the products.
    """

    method: str
    interval: Interval
    base: Series
    terms: tuple[FormTerm, ...] = field(default=())

    def __repr__(self) -> str:
        return one_line(self, f"{self.method}, {counted(self.cost.levels, 'level')}, {self.cost.products} products")

    @property
    def degree(self) -> int:
        """The degree of the base, or the highest of a product's."""
        tops = [math.prod(len(s) - 1 for s in term.left) + len(term.right) - 1 for term in self.terms]
        return max([len(self.base) - 1, *tops])

    def __call__(self, z: Any) -> Array:
        """The values at the numbers z, exactly as the circuit gives them but for rounding."""
        low, high = self.interval
        t = (np.asarray(z, dtype=np.float64) - (low + high) / 2) / ((high - low) / 2)
        with np.errstate(over="ignore", invalid="ignore"):
            total: Array = np.asarray(chebyshev.chebval(t, self.base), dtype=np.float64)
            for term in self.terms:
                left = t
                for series in term.left:
                    left = chebyshev.chebval(left, series)
                total = total + left * chebyshev.chebval(t, term.right)
        return total

    def run(self, machine: Machine, t: Number, baby: int) -> Number:
        """The same on a machine, with the least levels."""
        circuit = ChebyshevCircuit(machine, t, baby)
        degree = len(np.trim_zeros(self.base, "b")) - 1
        if not self.terms:
            return circuit.total(np.asarray(self.base), t.level + levels_of(degree))
        factors = []
        for term in self.terms:
            left, inner = t, circuit
            for series in term.left:
                if left is not t:
                    inner = ChebyshevCircuit(machine, left, baby)
                left = inner.total(np.asarray(series), left.level + levels_of(len(series) - 1))
            right = circuit.total(np.asarray(term.right), t.level + levels_of(len(term.right) - 1))
            factors.append((left, right))
        level = max(max(a.level, b.level) for a, b in factors)
        total = None
        for left, right in factors:
            product = machine.product(machine.lowered(left, level), machine.lowered(right, level))
            if total is not None:
                product = machine.add(total, product)
            total = product
        assert total is not None
        if degree > 0:
            level = max(total.level, t.level + levels_of(degree))
            return machine.add(machine.lowered(total, level), circuit.total(np.asarray(self.base), level, total.scale))
        if degree == 0:
            return machine.shifted(total, float(self.base[0]))
        return total

    @cached_property
    def cost(self) -> Cost:
        """Levels and products, by running the circuit on plain numbers; of several circuits the cheapest."""
        costs = []
        for baby in (1, 2, 4, 8, 16):
            machine = PlainMachine()
            costs.append(Cost(self.run(machine, Number(0.25), baby).level, machine.products, baby))
        return min(costs, key=lambda c: (c.levels, c.products, c.baby))

    def document(self) -> dict[str, Any]:
        """All of it in JSON's own types."""
        return {
            "method": self.method,
            "interval": list(self.interval),
            "base": list(self.base),
            "terms": [{"left": [list(s) for s in term.left], "right": list(term.right)} for term in self.terms],
        }

    @classmethod
    def of_document(cls, document: Any) -> CircuitForm:
        """The form that `document` wrote."""
        low, high = map(float, document["interval"])
        terms = tuple(
            FormTerm(tuple(tuple(map(float, s)) for s in term["left"]), tuple(map(float, term["right"])))
            for term in document["terms"]
        )
        return cls(str(document["method"]), (low, high), tuple(map(float, document["base"])), terms)


class TabulatedForm:
    """A form as a function of tensors: looked up and interpolated inside its interval, exact outside.

    The table has equal steps of the angle whose cosine is t: there a cosine transform gives all values of a series at
    once, whatever its degree.
    """

    def __init__(self, form: CircuitForm) -> None:
        self.form = form
        low, high = form.interval
        self.middle, self.half = (low + high) / 2, (high - low) / 2
        self.values = tabulated(form)
        self.table = torch.from_numpy(self.values).float()
        self.differences = self.table.diff()

    def inside(self, z: Array) -> Array:
        """The values at numbers inside the interval."""
        place = np.arccos(np.clip((z - self.middle) / self.half, -1, 1)) * (TABLE / math.pi)
        return np.interp(place, np.arange(TABLE + 1), self.values)

    def __call__(self, z: Tensor) -> Tensor:
        t = (z - self.middle) / self.half
        place = torch.arccos(t.clamp(-1, 1)) * (TABLE / math.pi)
        cell = place.clamp(0, TABLE - 1).long()
        table, differences = self.table.to(z.device), self.differences.to(z.device)
        out = table[cell] + (place - cell) * differences[cell]
        outside = t.abs() > 1
        if outside.any():
            out[outside] = torch.from_numpy(self.form(z[outside].double().cpu().numpy())).to(out)
        return out.to(z.dtype)


def tabulated(form: CircuitForm) -> Array:
    """The values of a form at t = cos(pi j / TABLE), j from 0 to TABLE."""

    def transform(series: Series) -> Array:
        c = np.zeros(TABLE + 1)
        c[: len(series)] = series
        c[1:-1] /= 2  # as the transform counts its ends once
        return np.asarray(dct(c, 1), dtype=np.float64)

    total = transform(form.base)
    for term in form.terms:
        left = transform(term.left[0])
        for series in term.left[1:]:
            left = np.asarray(chebyshev.chebval(left, series), dtype=np.float64)
        total = total + left * transform(term.right)
    return total


# ---- single polynomials


def minimax_form(gate: Activation, data: PreActivations, levels: int) -> CircuitForm:
    """The polynomial of least maximum error; from degree 127 on the interpolant, which is within a few times of it."""
    degree = 2**levels - 1
    if degree > 100:
        low, high = data.interval
        nodes = (low + high) / 2 + (high - low) / 2 * chebyshev.chebpts1(degree + 1)[::-1]
        return CircuitForm("minimax", data.interval, interpolated(values(gate, nodes.copy()).numpy()))
    return CircuitForm("minimax", data.interval, minimax(gate, degree, data.interval).chebyshev)


def fitted_form(gate: Activation, data: PreActivations, levels: int, guard: float) -> CircuitForm:
    """The least mean square on the data, a part `guard` of the weight spread over the whole interval."""
    degree = 2**levels - 1
    low, high = data.interval
    nodes = np.cos(np.pi * (np.arange(8 * degree) + 0.5) / (8 * degree))
    t = np.concatenate([(2 * data.z - low - high) / (high - low), nodes])
    weights = np.concatenate([(1 - guard) * data.counts / data.counts.sum(), np.full(len(nodes), guard / len(nodes))])
    exact = values(gate, (low + high) / 2 + (high - low) / 2 * t).numpy()
    root = np.sqrt(weights)
    c = np.linalg.lstsq(chebyshev.chebvander(t, degree) * root[:, None], exact * root, rcond=None)[0]
    return CircuitForm(f"fit, guard {guard:g}", data.interval, tuple(c.tolist()))


# ---- pieces and compositions


def step_series(place: float, interval: Interval, levels: int, off: float) -> Series:
    """0 left of the place and 1 right of it, as a polynomial of 2^levels - 1 that is off by about that much."""
    degree = 2**levels - 1
    sharpness = degree / (2 * math.sqrt(math.log(1 / off)))
    centre = (2 * place - interval[0] - interval[1]) / (interval[1] - interval[0])
    return interpolated((1 + erf(sharpness * (chebyshev.chebpts1(degree + 1)[::-1] - centre))) / 2)


def interpolated(ordinates: Array) -> Series:
    """The series through values at as many Chebyshev points, the greatest first, by a cosine transform."""
    series = np.asarray(dct(ordinates, 2), dtype=np.float64) / len(ordinates)
    series[0] /= 2
    return tuple(series.tolist())


def pieces_form(
    name: str, breaks: Sequence[float], pieces: Sequence[Sequence[float]], data: PreActivations, levels: int, off: float
) -> CircuitForm:
    """Polynomials between breaks, in powers of z, with steps of one level less than the whole has.

    Breaks outside the interval need no comparison.
    """
    low, high = data.interval
    longest = max(map(len, pieces))
    powers = [np.pad(np.asarray(p, dtype=float), (0, longest - len(p))) for p in pieces]
    inside = [i for i, b in enumerate(breaks) if low < b < high]
    first = sum(b <= low for b in breaks)  # the piece that the interval begins in
    terms = []
    for i in inside:
        step = step_series(breaks[i], data.interval, levels - 1, off)
        right = Polynomial.from_powers(powers[i + 1] - powers[i], data.interval).chebyshev
        terms.append(FormTerm((step,), trimmed(right)))
    base = Polynomial.from_powers(powers[first], data.interval).chebyshev
    return CircuitForm(name, data.interval, trimmed(base), tuple(terms))


def trimmed(series: Sequence[float]) -> Series:
    """Without zeros at its end, but never without any.

    >>> trimmed([1.0, 2.0, 0.0]), trimmed([0.0, 0.0])
    ((1.0, 2.0), (0.0,))
    """
    return tuple(np.trim_zeros(np.asarray(series, dtype=float), "b").tolist()) or (0.0,)


def sharpest(make: Callable[[float], CircuitForm], gate: Activation, data: PreActivations) -> CircuitForm:
    """Of steps of several sharpnesses the one with the least mean square on the data."""
    exact = values(gate, data.z).numpy()
    return min((make(off) for off in _SHARPNESS), key=lambda form: data.rms(TabulatedForm(form).inside(data.z) - exact))


def published_form(published: Published, gate: Activation, data: PreActivations, levels: int) -> CircuitForm:
    """A published approximation under CKKS alone, with so many levels in all."""
    return sharpest(
        lambda off: pieces_form(published.name, published.breaks, published.pieces, data, levels, off), gate, data
    )


def clamped_form(gate: Activation, data: PreActivations, levels: int) -> CircuitForm:
    """Our own polynomial between two clamps, as NEXUS has one: 0 to the left and z to the right."""
    degree = min(2 ** (levels - 2) - 1, _CLAMPED_DEGREE)
    inner = minimax(gate, degree, _CLAMPED_AT).coefficients
    breaks, pieces = (-_CLAMPED_AT, _CLAMPED_AT), ((0.0,), inner, (0.0, 1.0))
    return sharpest(lambda off: pieces_form("clamped", breaks, pieces, data, levels, off), gate, data)


def composite_form(gate: Activation, data: PreActivations, levels: int, guard: float = GUARDS[1]) -> CircuitForm:
    """z / 2 + z q(p(z)): p squeezes the range, outliers and all, into [-1, 1], and q is fitted to what is left."""
    inner = (levels - 1) // 2
    low, high = data.interval
    half, middle = (high - low) / 2, (high + low) / 2
    squeeze = fitted_squeeze(data, inner)
    nodes = np.cos(np.pi * (np.arange(2048) + 0.5) / 2048)
    t = np.concatenate([(data.z - middle) / half, nodes])
    z = middle + half * t
    u = chebyshev.chebval(t, squeeze)
    weights = np.concatenate([(1 - guard) * data.counts / data.counts.sum(), np.full(len(nodes), guard / len(nodes))])
    root = np.sqrt(weights)
    degree = 2 ** (levels - 1 - inner) - 1
    matrix = chebyshev.chebvander(u, degree) * (z * root)[:, None]
    outer = np.linalg.lstsq(matrix, (values(gate, z).numpy() - z / 2) * root, rcond=None)[0]
    line = (middle, half)
    return CircuitForm(
        "composite",
        data.interval,
        tuple(c / 2 for c in line),
        (FormTerm((tuple(squeeze.tolist()), tuple(outer.tolist())), line),),
    )


def fitted_squeeze(data: PreActivations, levels: int) -> Array:
    """The polynomial of that many levels closest to tanh(z / 2) in mean square over the interval, within [-1, 1]."""
    low, high = data.interval
    half, middle = (high - low) / 2, (high + low) / 2
    degree = 2**levels - 1
    t = np.cos(np.pi * (np.arange(4096) + 0.5) / 4096)
    series = chebyshev.chebfit(t, np.tanh((middle + half * t) / 2), degree)
    return np.asarray(series / max(1.0, float(np.abs(chebyshev.chebval(t, series)).max())), dtype=np.float64)


def candidates(
    gate: Activation, data: PreActivations, levels: int, published: Sequence[Published] = ()
) -> list[CircuitForm]:
    """All forms of so many levels for a layer, those that cannot be made left out."""
    forms = [minimax_form(gate, data, levels), *(fitted_form(gate, data, levels, guard) for guard in GUARDS)]
    if gate.name in ("gelu", "gelu-tanh", "silu", "relu") and levels >= 4:
        forms.append(composite_form(gate, data, levels))
        if data.interval[0] < -_CLAMPED_AT and data.interval[1] > _CLAMPED_AT:
            forms.append(clamped_form(gate, data, levels))
    if gate.name in ("gelu", "gelu-tanh"):
        for other in published:
            if other.breaks and levels > levels_of(other.degree) and data.interval[0] < other.breaks[0]:
                forms.append(published_form(other, gate, data, levels))
    return forms
