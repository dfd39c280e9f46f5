"""Appendix D: the generalisation gap of every model, data set and optimiser, with units that the paper did not try."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.figure import Figure

from gatelab.plotting.kernels import gap_figure
from gatelab.studies.definition import Claim, Outcome, Request, Study
from gatelab.studies.ntk.fig7 import PAIRS, differences, joint_claim, matched_claim
from gatelab.studies.ntk.gaps import clouds_of, ends_table, notes, runs_for, setting_name
from gatelab.train import Comparison, Gap

NEW = ("gqu", "relu2")


def run(request: Request) -> Outcome:
    found = runs_for(request, {"vit": (*PAIRS["vit"], *NEW), "gpt2": (*PAIRS["gpt2"], *NEW)})
    comparisons = found.comparisons()
    claims = [claim for c in comparisons for claim in _claims(c)]
    tables = {
        "comparisons": pd.DataFrame([c.row() for c in (*comparisons, *found.optimiser_comparisons())]),
        "runs": ends_table(found),
    }
    return Outcome(_figure(found, comparisons), tables, tuple(claims), notes(found))


def _claims(c: Comparison) -> tuple[Claim, Claim]:
    if c.second in NEW:
        return joint_claim(c, paper="-"), matched_claim(c, paper="-")
    return joint_claim(c), matched_claim(c)


def _figure(found: Gap, comparisons: Sequence[Comparison]) -> Figure:
    """A plane for each model, data set and optimiser, all units in it, and the differences at equal loss."""
    panels = []
    for model, data in found.settings():
        for optimiser in found.optimisers(model, data):
            clouds = clouds_of(found, model, data, found.units(model, data), optimiser)
            panels.append((setting_name(model, data, optimiser), clouds))
    title = "Appendix D: generalisation gap against training loss, all units"
    return gap_figure(panels, title, differences(comparisons))


STUDY = Study(
    "ntk/appendix-d",
    "The generalisation gap of more units",
    "For the same training error a gate has limited influence on the generalisation gap.",
    run,
    position=10,
)
