"""What the noisy fits of one unit say: the additive law, the noise law, and where each of them holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd

from gatelab.scaling import Law, Slope, fit_law
from gatelab.studies.law_panels import LawPanel
from gatelab.studies.noisy import NoiseLaw, Noisy, Plan, columns, fit_noise_law

NEAR_D = 0.25  # parameters over data from which on a network counts as near to interpolation
BINS = (0.0, 1 / 64, 1 / 16, 1 / 4, 1 / 2, np.inf)


@dataclass(frozen=True, eq=False)
class UnitLaws:
    """What one unit's fits say: the additive law, the noise law, and the slope against P without noise."""

    unit: str
    additive: Law
    noisy: NoiseLaw
    noise_free: Slope
    kept: tuple[Noisy, ...]
    left_out: tuple[Noisy, ...]

    @property
    def panel(self) -> LawPanel:
        return LawPanel(
            self.unit, columns(self.kept), columns(self.left_out), self.additive.predict, self.noisy.predict
        )

    def ratios(self, low: float, high: float) -> tuple[np.ndarray, np.ndarray]:
        """Measured error over that of the additive and of the noise law, for fits with P/D in [low, high)."""
        P, D, L = columns((*self.kept, *self.left_out))
        here = (low <= P / D) & (high > P / D)
        return (L / self.additive.predict(P, D))[here], (L / self.noisy.predict(P, D))[here]


def unit_laws(unit: str, fits: Sequence[Noisy], plan: Plan, noise_free: Slope) -> UnitLaws:
    mine = [f for f in fits if f.unit == unit]
    kept, left_out = (tuple(f for f in mine if f.left_out is out) for out in (False, True))
    P, D, L = columns(kept)
    return UnitLaws(unit, fit_law(P, D, L), fit_noise_law(P, D, L, plan.noise), noise_free, kept, left_out)


def share_of_noise(laws: UnitLaws) -> tuple[float, float]:
    """How much of the squared error estimation makes, by the noise law, at the two opposite corners of the table."""
    P, D, _ = columns(laws.kept)
    least = D[P.max() <= P].min()
    shape, estimation = laws.noisy.parts(np.array([P.min(), P.max()]), np.array([D.max(), least]))
    shares = estimation**2 / (shape**2 + estimation**2)
    return float(shares[0]), float(shares[1])


def laws_table(found: Sequence[UnitLaws]) -> pd.DataFrame:
    """A row a unit: the five constants of the additive law with intervals, the noise law, the slope without noise."""
    rows = []
    for laws in found:
        line: dict[str, object] = {"unit": laws.unit, "fits": laws.additive.points, "left_out": len(laws.left_out)}
        for name, (low, high) in laws.additive.intervals._asdict().items():
            line |= {name: getattr(laws.additive, name), f"{name}_low": low, f"{name}_high": high}
        line["log_rmse"] = laws.additive.rmse
        line |= {f"noise_{key}": getattr(laws.noisy, key) for key in ("A", "a", "c")}
        line |= {"noise_log_rmse": laws.noisy.rmse, "noise_free_slope_P": laws.noise_free.value}
        rows.append(line | {"noise_free_low": laws.noise_free.low, "noise_free_high": laws.noise_free.high})
    return pd.DataFrame(rows)


def ratios_table(found: Sequence[UnitLaws]) -> pd.DataFrame:
    """Measured error over each law's, by how near P is to D: geometric mean, least and greatest."""
    rows = []
    for laws in found:
        for low, high in pairwise(BINS):
            for law, ratios in zip(("additive", "noise"), laws.ratios(low, high), strict=True):
                if len(ratios):
                    line = {"unit": laws.unit, "P_over_D_from": low, "P_over_D_to": high, "law": law}
                    middle = float(np.exp(np.log(ratios).mean()))
                    rows.append(line | {"fits": len(ratios), "mean": middle, "min": ratios.min(), "max": ratios.max()})
    return pd.DataFrame(rows)


def where_it_holds(laws: UnitLaws) -> str:
    """How far the additive law is off far from interpolation and near to it."""
    said = []
    for words, low, high in (("below", 0.0, NEAR_D), ("from", NEAR_D, np.inf)):
        additive, noisy = laws.ratios(low, high)
        if len(additive):
            off, less = (float(np.exp(np.abs(np.log(r)).max())) for r in (additive, noisy))
            mean = float(np.exp(np.log(additive).mean()))
            said.append(
                f"for P/D {words} {NEAR_D:g} the error is {mean:.2f} times the additive law's in the mean and up to "
                f"{off:.2f} times off (noise law: {less:.2f})"
            )
    return f"{laws.unit}: {'; '.join(said)}."
