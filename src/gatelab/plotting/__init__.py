"""Figures: a common style, log-log curves with limits, functions, and saving.

The package draws plain arrays and tables, and does not depend on fits or units. It does not use pyplot, so drawing
leaves windows, backends and settings unchanged.
"""

from gatelab.plotting.curves import Curve, scaling_figure
from gatelab.plotting.theme import GRAY, NEURON_COLORS, Look, look, looks, new_figure, save, saved, style

__all__ = [
    "GRAY",
    "NEURON_COLORS",
    "Curve",
    "Look",
    "look",
    "looks",
    "new_figure",
    "save",
    "saved",
    "scaling_figure",
    "style",
]
