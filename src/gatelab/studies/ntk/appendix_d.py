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
    """Appendix D from the record, or from small models that are trained now."""
    gap = runs_for(request, {"vit": (*PAIRS["vit"], *NEW), "gpt2": (*PAIRS["gpt2"], *NEW)})
    comparisons = gap.comparisons()
    claims: list[Claim] = []
    for c in comparisons:
        if c.second in NEW:
            claims += [joint_claim(c, paper="-"), matched_claim(c, paper="-")]
        else:
            claims += [joint_claim(c), matched_claim(c)]
    tables = {
        "comparisons": pd.DataFrame([c.row() for c in (*comparisons, *gap.optimiser_comparisons())]),
        "runs": ends_table(gap),
    }
    return Outcome(draw(gap, comparisons), tables, tuple(claims), notes(gap))


def draw(gap: Gap, comparisons: Sequence[Comparison]) -> Figure:
    """A plane for each model, data set and optimiser, all units in it, and the differences at equal loss."""
    panels = []
    for model, data in gap.settings():
        for optimiser in gap.optimisers(model, data):
            clouds = clouds_of(gap, model, data, gap.units(model, data), optimiser)
            panels.append((setting_name(model, data, optimiser), clouds))
    title = "Appendix D: generalisation gap against training loss, all units"
    return gap_figure(panels, title, differences(comparisons))


STUDY = Study(
    "ntk/appendix-d",
    "The generalisation gap of more units",
    "For the same training error a gate has limited influence on the generalisation gap.",
    run,
    position=10,
    beyond=True,
)
