"""How results are drawn: one style, log-log curves with limits, functions, saving.

The package draws plain arrays and tables, and knows nothing of fits or units. Figures are made without pyplot, so that
drawing leaves
no window, no backend and no setting behind.
"""

from gatelab.plotting.curves import Curve, scaling_figure
from gatelab.plotting.theme import GREY, NEURON_COLOURS, Look, look, looks, new_figure, save, saved, style

__all__ = [
    "GREY",
    "NEURON_COLOURS",
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
