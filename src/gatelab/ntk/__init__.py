"""Tangent kernels of any unit and any module, and their spectra.

    gl.ntk.analytic("glu", X, width=4096)       expected over initializations; width=None for the limit per neuron
    gl.ntk.empirical(model, X, outputs=0)       of a given network, within a budget of memory
    gl.ntk.operator(model, X, outputs=0)        the same as a LinearOperator, the matrix never formed
    gl.ntk.spectrum(K)                          extreme eigenvalues with bounds, condition number, density
    gl.ntk.estimate("glu", n, d, width)         the paper's estimates and ours, for Gaussian data

Kernels are values (`Kernel`): a float64 matrix on its device, its label, width and error.
"""

from gatelab.ntk.estimates import Estimate, estimate
from gatelab.ntk.kernels import Kernel, analytic
from gatelab.ntk.modules import empirical, operator
from gatelab.ntk.spectra import Spectrum, spectrum

__all__ = ["Estimate", "Kernel", "Spectrum", "analytic", "empirical", "estimate", "operator", "spectrum"]
