"""Tangent kernels of any unit and any module: how well a unit trains.

    gl.ntk.analytic("glu", X, width=4096)       expected over initialisations; width=None for the limit per neuron
    gl.ntk.empirical(model, X, outputs=0)       of a given network, within a budget of memory
    gl.ntk.spectrum(K)                          extreme eigenvalues with bounds, condition number, density
    gl.ntk.estimate("glu", n, d, width)         the paper's estimates and ours, for Gaussian data

Kernels are values (`Kernel`): a float64 matrix on its device, its label, width and error.
"""

from gatelab.ntk.kernel import Kernel

__all__ = ["Kernel"]
