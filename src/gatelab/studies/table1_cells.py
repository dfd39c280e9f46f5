"""The cells of table 1: a slope of ours under one protocol, the paper's beside it, and what theory grants."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pandas as pd

from gatelab.scaling import Slope
from gatelab.studies.many_inputs import PROTOCOLS, UNITS, Measured, Protocol, Row
from gatelab.studies.study import Claim, Verdict
from gatelab.studies.verdicts import slope_claim, slope_verdict

MATCH = 0.25  # of the expected slope: as near as this counts as a match


@dataclass(frozen=True)
class Cell:
    """One slope against n."""

    row: Row
    unit: str
    protocol: Protocol
    ours: Slope
    left_out: int = 0

    @property
    def what(self) -> str:
        return f"{self.row.label}, {self.unit}, {PROTOCOLS[self.protocol]}"

    @property
    def paper(self) -> float | None:
        return self.row.paper(self.unit)

    @property
    def worst_case(self) -> float:
        return self.row.worst_case(self.unit)

    @property
    def attainable(self) -> int | None:
        return self.row.attainable(self.unit)

    @property
    def verdict(self) -> Verdict:
        return slope_verdict(self.paper, self.ours, self.row.near)

    def claim(self, because: str) -> Claim:
        return slope_claim(self.what, self.paper, self.ours, because, self.row.near)


def cells_of(found: Measured) -> tuple[Cell, ...]:
    """A cell for every unit and protocol."""
    return tuple(
        Cell(found.row, unit, protocol, found.slope(unit, protocol), found.left_out(unit, protocol))
        for unit in UNITS
        for protocol in PROTOCOLS
    )


def _pairs(cells: Iterable[Cell], protocol: Protocol) -> list[tuple[Cell, Cell]]:
    """MLP and GLU of every row of the paper's table."""
    mine = {(c.row.name, c.unit): c for c in cells if c.protocol == protocol and c.row.tabled}
    return [(mine[name, "mlp"], mine[name, "glu"]) for name, unit in mine if unit == "mlp"]


def steeper_claim(cells: Sequence[Cell], protocol: Protocol) -> Claim:
    """Appendix D: the GLU's slope is steeper than the MLP's on every problem but California housing."""
    pairs = _pairs(cells, protocol)
    steeper = [m.row.label for m, g in pairs if g.ours.value < m.ours.value - m.row.near]
    expected = [m.row.label for m, _ in pairs if m.row.name != "california"]
    said = "; ".join(f"{m.row.label} {m.ours.value:.2f} and {g.ours.value:.2f}" for m, g in pairs)
    return Claim(
        f"problems on which the GLU is steeper than the MLP, {PROTOCOLS[protocol]}",
        "all but California housing",
        f"{len(steeper)} of {len(pairs)}: {', '.join(steeper) or 'none'}",
        "reproduced" if steeper == expected else "differs",
        f"Steeper by more than {pairs[-1][0].row.near:g} ({pairs[0][0].row.near:g} in one dimension). Slopes of mlp "
        f"and glu: {said}.",
    )


def inputs_claim(cells: Sequence[Cell], protocol: Protocol) -> Claim:
    """Appendix D: slopes decrease by a factor of 1 / dim_x, though "not every problem matches"."""
    pairs = _pairs(cells, protocol)
    first = next(pair for pair in pairs if pair[0].row.inputs == 1)
    rest = [(c, one) for pair in pairs if pair[0].row.inputs > 1 for c, one in zip(pair, first, strict=True)]
    times = [c.ours.value * c.row.inputs / one.ours.value for c, one in rest]
    printed = [c.paper * c.row.inputs / one.paper for c, one in rest if c.paper is not None and one.paper is not None]
    return Claim(
        f"slope times dim_x over the slope in one dimension, mlp and glu, {PROTOCOLS[protocol]}",
        f"1, by its own table {min(printed):.2f} to {max(printed):.2f}",
        f"{min(times):.2f} to {max(times):.2f}",
        "reproduced" if all(abs(t - 1) <= MATCH for t in times) else "differs",
        f"Within {MATCH:.0%} of 1 are {sum(abs(t - 1) <= MATCH for t in times)} of our {len(times)} and "
        f"{sum(abs(t - 1) <= MATCH for t in printed)} of the paper's {len(printed)}: the slope depends on the target, "
        "and sums of ridge functions lose nothing with the number of inputs.",
    )


def slopes_table(cells: Iterable[Cell]) -> pd.DataFrame:
    """A row a cell; NaN where the paper has a dash and where theory knows of nothing better than the worst case."""
    return pd.DataFrame(
        [
            {
                "problem": c.row.name,
                "inputs": c.row.inputs,
                "unit": c.unit,
                "protocol": c.protocol,
                "paper": c.paper,
                "slope": c.ours.value,
                "low": c.ours.low,
                "high": c.ours.high,
                "worst_case": c.worst_case,
                "attainable": c.attainable,
                "widths": f"{c.row.widths[0]}..{c.row.widths[-1]}",
                "seeds": c.row.seeds,
                "fits_left_out": c.left_out,
                "verdict": c.verdict,
            }
            for c in cells
        ]
    )


def printed_table(cells: Sequence[Cell]) -> pd.DataFrame:
    """The table as one would print it: a row a problem, for each unit the paper's slope, ours twice, the rates."""
    rows = []
    for row in dict.fromkeys(c.row.name for c in cells):
        mine = [c for c in cells if c.row.name == row]
        line: dict[str, object] = {"problem": mine[0].row.label, "x dim": mine[0].row.inputs}
        for unit in UNITS:
            by = {c.protocol: c for c in mine if c.unit == unit}
            first = by["split"]
            line[f"{unit}, paper"] = "-" if first.paper is None else f"{first.paper:.2f}"
            line |= {f"{unit}, {words}": str(by[protocol].ours) for protocol, words in PROTOCOLS.items()}
            line[f"{unit}, worst case"] = f"{first.worst_case:.2f}"
            line[f"{unit}, attainable"] = "" if first.attainable is None else f"{first.attainable}"
        rows.append(line)
    return pd.DataFrame(rows)
