"""Linearisation: act(w.x) = Phi(w) . Psi(x), with the best that is possible beside it.

made = gl.linearize("gelu", "minimax", degree=8, interval=5.0)   a polynomial of w.x, its maps for every d
made.phi(W), made.psi(X), made.product(W, X)                      the maps, and their product in bounded memory
made.error("gaussian", d=16), made.error(W=W, X=X)                RMSE and maximum beside the floor
made.bound(), export(made.polynomial).save("gelu.json")           proved error, and a file for encrypted inference
published()                                                       what others use, to compare with
"""

from gatelab.linearization.error import Error, monte_carlo, monte_carlo_variance
from gatelab.linearization.exchange import Export, Published, export, find_published, published, read_polynomial
from gatelab.linearization.floors import FloorSpectrum, floor, floor_curve, spectrum
from gatelab.linearization.linearizations import Linearization, LinearizedLayer
from gatelab.linearization.monomials import Maps
from gatelab.linearization.polynomials import Cost, Polynomial, cost
from gatelab.linearization.registry import linearize, methods
from gatelab.linearization.remez import Bound, Equioscillation, bound, equioscillation
from gatelab.linearization.series import calibrate
from gatelab.linearization.verdicts import Verdict, verdict

__all__ = [
    "Bound",
    "Cost",
    "Equioscillation",
    "Error",
    "Export",
    "FloorSpectrum",
    "Linearization",
    "LinearizedLayer",
    "Maps",
    "Polynomial",
    "Published",
    "Verdict",
    "bound",
    "calibrate",
    "cost",
    "equioscillation",
    "export",
    "find_published",
    "floor",
    "floor_curve",
    "linearize",
    "methods",
    "monte_carlo",
    "monte_carlo_variance",
    "published",
    "read_polynomial",
    "spectrum",
    "verdict",
]
