"""A polynomial for encrypted inference, with what its user must know: interval, cost, proved error, what lies outside.

The document is JSON: coefficients as decimal numbers that give back the same floats.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gatelab.display import one_line
from gatelab.errors import GatelabError
from gatelab.files import write_whole
from gatelab.linearize.bounds import bound
from gatelab.linearize.depth import Cost, cost
from gatelab.linearize.given import meant, values
from gatelab.linearize.polynomials import Polynomial
from gatelab.units.activations import Activation

FORMAT = "gatelab polynomial 1"
_LARGEST = math.log(1.7e308)
OUTSIDE = (1.1, 1.25, 1.5, 2.0)  # half-widths from the middle


@dataclass(frozen=True)
class Export:
    """`measured` is the largest error found on a grid over the interval, `bound` one that is proved (None where nothing
    is known of the activation), `rounding` what coefficients in powers of z may add in float64, `outside` the largest
    error at so many half-widths from the middle."""

    polynomial: Polynomial
    cost: Cost
    measured: float
    bound: float | None
    rounding: float
    outside: tuple[tuple[float, float], ...]

    def __repr__(self) -> str:
        return one_line(
            self,
            f"{self.polynomial.method} of {self.polynomial.activation}, degree {self.polynomial.degree}: "
            f"largest error {self.measured:.3g}, depth {self.cost.depth}",
        )

    def document(self) -> dict[str, Any]:
        """All of it in JSON's own types."""
        p = self.polynomial
        return {
            "format": FORMAT,
            "activation": p.activation,
            "method": p.method,
            "degree": p.degree,
            "interval": list(p.interval),
            "margin": p.margin,
            "powers": list(p.coefficients),
            "chebyshev": list(p.chebyshev),
            "error": {"measured": self.measured, "bound": self.bound, "rounding_of_powers": self.rounding},
            "cost": asdict(self.cost),
            "outside": [{"half_widths": k, "error": e} for k, e in self.outside],
        }

    def save(self, path: str | Path) -> Path:
        return write_whole(path, json.dumps(self.document(), indent=2, allow_nan=False) + "\n")


def export(polynomial: Polynomial, activation: Activation | None = None) -> Export:
    """The polynomial with its figures; the activation is found by its name unless it is a function of the user's.

    >>> from gatelab.linearize.minimax import minimax
    >>> from gatelab.units.activations import activation
    >>> made = export(minimax(activation("gelu"), 8, 5.0))
    >>> made.cost.depth, f"{made.measured:.3g} <= {made.bound:.3g}", [f"{k}: {e:.2g}" for k, e in made.outside][-1]
    (3, '0.0257 <= 0.0257', '2.0: 9.9e+02')
    """
    gate = meant(polynomial.activation)[0] if activation is None else activation
    low, high = polynomial.interval
    try:
        proved = bound(polynomial, gate)
        measured, value = max(proved.measured, polynomial.error(gate)), proved.value
    except GatelabError:
        measured, value = polynomial.error(gate), None
    far = [(k, _error_at(polynomial, gate, k)) for k in OUTSIDE]
    reach = max(abs(low), abs(high))
    # By logarithms: reach^k alone may leave float64 where the product with its coefficient does not.
    logs = [math.log(abs(a)) + k * math.log(reach) for k, a in enumerate(polynomial.coefficients) if a]
    sizes = sum(math.exp(log) if log < _LARGEST else math.inf for log in logs)
    rounding = 2 * (polynomial.degree + 1) * math.ulp(1.0) * sizes
    return Export(polynomial, cost(polynomial), measured, value, rounding, tuple(far))


def _error_at(p: Polynomial, gate: Activation, half_widths: float) -> float:
    low, high = p.interval
    centre, reach = (low + high) / 2, half_widths * (high - low) / 2
    ends = values(gate, [centre - reach, centre + reach]).numpy() - p([centre - reach, centre + reach])
    return float(abs(ends).max())


def read_polynomial(path: str | Path) -> Polynomial:
    """The polynomial of a file that `Export.save` wrote; its two bases must agree."""
    file = Path(path)
    try:
        given = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise GatelabError(f"{file} cannot be read ({error.strerror or error}); give a file of --export") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise GatelabError(f"{file} is not JSON ({error}); give a file that was exported by gatelab") from None
    return from_document(given, str(file))


def from_document(given: Any, name: str = "the document") -> Polynomial:
    """The polynomial of such a document."""
    if not isinstance(given, Mapping) or given.get("format") != FORMAT:
        raise GatelabError(f"{name} is not a {FORMAT!r} document; give what gatelab exported")
    try:
        interval = tuple(float(v) for v in given["interval"])
        powers, basis = ([float(v) for v in given[key]] for key in ("powers", "chebyshev"))
        about = {key: str(given[key]) for key in ("activation", "method")}
        made = Polynomial(
            tuple(powers), tuple(basis), (interval[0], interval[1]), **about, margin=float(given["margin"])
        )
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise GatelabError(
            f"{name} is damaged ({type(error).__name__}: {error}); export the polynomial again"
        ) from None
    other = Polynomial.from_chebyshev(basis, made.interval).coefficients
    reach = max(map(abs, interval))
    gap = sum(abs(a - b) * reach**k for k, (a, b) in enumerate(zip(powers, other, strict=True)))
    size = sum(abs(a) * reach**k for k, a in enumerate(powers))
    if gap > 1e-9 * max(size, 1e-300):
        raise GatelabError(
            f"{name} is damaged: its coefficients in powers and in Chebyshev polynomials disagree by {gap:.2g}"
        )
    return made
