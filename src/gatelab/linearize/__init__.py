"""Linearisation: act(w.x) = Phi(w) . Psi(x), with the best that is possible beside it.

made = gl.linearize("gelu", "minimax", degree=8, interval=5.0)   a polynomial of w.x, its maps for every d
made.phi(W), made.psi(X), made.product(W, X)                      the maps, and their product in bounded memory
made.error("gaussian", d=16), made.error(W=W, X=X)                RMSE and maximum beside the floor
made.bound(), export(made.polynomial).save("gelu.json")           proved error, and a file for encrypted inference
published()                                                       what others use, to compare with
"""

from gatelab.linearize.bounds import Bound, bound
from gatelab.linearize.calibrate import calibrate
from gatelab.linearize.depth import Cost, cost
from gatelab.linearize.error import Error
from gatelab.linearize.export import Export, export, read_polynomial
from gatelab.linearize.floor import Spectrum, floor, floor_curve, spectrum
from gatelab.linearize.layer import LinearizedLayer
from gatelab.linearize.linearization import Linearization
from gatelab.linearize.maps import Maps
from gatelab.linearize.methods import linearize, methods
from gatelab.linearize.minimax import Equioscillation, equioscillation
from gatelab.linearize.monte_carlo import monte_carlo, monte_carlo_variance
from gatelab.linearize.polynomials import Polynomial
from gatelab.linearize.published import Published, find_published, published
from gatelab.linearize.verdict import Verdict, verdict

__all__ = [
    "Bound",
    "Cost",
    "Equioscillation",
    "Error",
    "Export",
    "Linearization",
    "LinearizedLayer",
    "Maps",
    "Polynomial",
    "Published",
    "Spectrum",
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
