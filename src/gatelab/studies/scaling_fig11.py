"""Figure 11: the neurons of the random GLU."""

from __future__ import annotations

from gatelab.studies.neuron_maps import neuron_maps
from gatelab.studies.study import Outcome, Request, Study


def run(request: Request) -> Outcome:
    return neuron_maps("glu", 11, request)


STUDY = Study(
    "scaling/fig11",
    "Neurons of a random GLU",
    "The neurons of a random GLU of two inputs form a piecewise quadratic basis.",
    run,
)
