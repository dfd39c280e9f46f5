"""Linearization: act(w.x) = Phi(w) . Psi(x), compared with the smallest possible error.

maps = gl.linearize("gelu", "minimax", degree=8, interval=5.0)   a polynomial of w.x, with maps for every d
maps.phi(W), maps.psi(X), maps.product(W, X)                      the maps, and their product in bounded memory
maps.error("gaussian", d=16), maps.error(W=W, X=X)                RMSE and maximum error, with the floor
maps.bound(), export(maps.polynomial).save("gelu.json")           proved error, and a file for encrypted inference
maps.encrypted(z)                                                 values under CKKS, and the parts of their error
plan_encrypted(model, rows, quality=0.999)                        per layer the form, with the fewest levels in total
PUBLISHED                                                         published approximations of GELU, by name
methods(), METHODS["mine"] = function                             the methods, and how to add one
"""

from gatelab.linearization.circuits import Cost
from gatelab.linearization.encryption import Encrypted, Parameters, parameters_for
from gatelab.linearization.error import Error
from gatelab.linearization.exchange import PUBLISHED, Export, Published, export, find_published
from gatelab.linearization.floors import FloorSpectrum, floor, floor_curve, spectrum
from gatelab.linearization.linearizations import Linearization, linearize
from gatelab.linearization.monomials import Maps
from gatelab.linearization.plans import EncryptedPlan, plan_encrypted
from gatelab.linearization.polynomials import Polynomial, calibrate
from gatelab.linearization.proofs import Bound, Equioscillation, bound, equioscillation
from gatelab.linearization.registry import METHODS, methods
from gatelab.linearization.verdicts import Verdict, verdict

__all__ = [
    "METHODS",
    "PUBLISHED",
    "Bound",
    "Cost",
    "Encrypted",
    "EncryptedPlan",
    "Equioscillation",
    "Error",
    "Export",
    "FloorSpectrum",
    "Linearization",
    "Maps",
    "Parameters",
    "Polynomial",
    "Published",
    "Verdict",
    "bound",
    "calibrate",
    "equioscillation",
    "export",
    "find_published",
    "floor",
    "floor_curve",
    "linearize",
    "methods",
    "parameters_for",
    "plan_encrypted",
    "spectrum",
    "verdict",
]
