"""Figure 10: the neurons of the random MLP."""

from __future__ import annotations

from gatelab.studies.neuron_maps import neuron_maps
from gatelab.studies.study import Outcome, Request, Study


def run(request: Request) -> Outcome:
    return neuron_maps("mlp", 10, request)


STUDY = Study(
    "scaling/fig10",
    "Neurons of a random MLP",
    "The neurons of a random MLP of two inputs form a piecewise linear basis.",
    run,
)
