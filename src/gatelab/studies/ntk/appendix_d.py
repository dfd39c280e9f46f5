"""Appendix D: the generalisation gap of every model, data set and optimiser, with units that the paper did not try."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.figure import Figure

from gatelab.plotting.kernels import gap_figure
from gatelab.studies.definition import Claim, Outcome, Request, Study
from gatelab.studies.ntk.fig7 import PAIRS, differences, joint_claim, matched_claim, where_name
from gatelab.studies.ntk.gaps import clouds_of, ends_table, notes, runs_for, setting_name
from gatelab.studies.ntk.printed import TEXT_PANELS
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
            claims += [joint_claim(c, place=panels_of(where_name(c))), matched_claim(c)]
    tables = {
        "comparisons": pd.DataFrame([c.row() for c in (*comparisons, *gap.optimiser_comparisons())]),
        "runs": ends_table(gap),
    }
    return Outcome(draw(gap, comparisons), tables, tuple(claims), notes(gap))


def panels_of(setting: str) -> str:
    """All panels of figure 12 for which a setting of the record stands; figures 8 to 11 have a study of their own.

    >>> panels_of("GPT-2 on FineWeb-Edu, AdamW")
    'figure 12, (a) GPT-2 on FineWeb-Edu, AdamW; figure 12, (b) GPT-2 on FineWeb-Edu, AdamW'
    """
    figures = TEXT_PANELS.get(setting, {})
    return "; ".join(f"{figure}, ({letter}) {setting}" for figure, letters in figures.items() for letter in letters)


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
)
