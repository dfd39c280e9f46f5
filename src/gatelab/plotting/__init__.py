"""How results are drawn: one style, log-log curves with limits, functions of one and of two variables, saving.

The room draws plain arrays and knows nothing of fits or units. Figures are made without pyplot, so that drawing leaves
no window, no backend and no setting behind.
"""

from gatelab.plotting.curves import Curve, scaling_figure
from gatelab.plotting.panel import (  # deleted at the merge
    Entry,
    Panel,
    Pen,
    Plane,
    canvas,
    colour_bar,
    draw_plane,
    draw_surface,
    figure_legend,
)
from gatelab.plotting.theme import GREY, NEURON_COLOURS, Look, look, looks, new_figure, save, saved, style

__all__ = [
    "GREY",
    "NEURON_COLOURS",
    "Curve",
    "Entry",
    "Look",
    "Panel",
    "Pen",
    "Plane",
    "canvas",
    "colour_bar",
    "draw_plane",
    "draw_surface",
    "figure_legend",
    "look",
    "looks",
    "new_figure",
    "save",
    "saved",
    "scaling_figure",
    "style",
]
