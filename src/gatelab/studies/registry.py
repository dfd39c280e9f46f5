"""The studies by name."""

from __future__ import annotations

from gatelab.errors import unknown_name
from gatelab.studies import (
    linearize_floor,
    linearize_learned2d,
    linearize_learned16,
    linearize_table1,
    linearize_table2,
    linearize_table3,
    linearize_transformer,
    ntk_appendix_d,
    ntk_fig1,
    ntk_fig2,
    ntk_fig3,
    ntk_fig4,
    ntk_fig5,
    ntk_fig6,
    ntk_fig7,
    ntk_orders,
    ntk_thm31,
    scaling_fig1,
    scaling_fig2,
    scaling_fig3,
    scaling_fig4,
    scaling_fig5,
    scaling_fig6,
    scaling_fig7,
    scaling_fig8,
    scaling_fig9,
    scaling_fig10,
    scaling_fig11,
    scaling_law,
    scaling_table1,
)
from gatelab.studies.study import Study

_STUDIES = {
    module.STUDY.name: module.STUDY
    for module in (
        scaling_fig1,
        scaling_fig2,
        scaling_fig3,
        scaling_fig4,
        scaling_fig5,
        scaling_fig6,
        scaling_fig7,
        scaling_fig8,
        scaling_table1,
        scaling_fig9,
        scaling_fig10,
        scaling_fig11,
        scaling_law,
        ntk_fig1,
        ntk_fig2,
        ntk_fig3,
        ntk_fig4,
        ntk_fig5,
        ntk_fig6,
        ntk_thm31,
        ntk_orders,
        ntk_fig7,
        ntk_appendix_d,
        linearize_table1,
        linearize_table2,
        linearize_table3,
        linearize_learned2d,
        linearize_learned16,
        linearize_floor,
        linearize_transformer,
    )
}


def studies() -> tuple[Study, ...]:
    """Every study, in the order of the papers.

    >>> [s.name for s in studies()][:3]
    ['scaling/fig1', 'scaling/fig2', 'scaling/fig3']
    """
    return tuple(_STUDIES.values())


def study(name: str) -> Study:
    """The study of that name."""
    if name not in _STUDIES:
        raise unknown_name("study", name, _STUDIES)
    return _STUDIES[name]
