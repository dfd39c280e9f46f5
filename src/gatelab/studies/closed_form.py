"""The closed form beside real gradient descent, step by step, in five degrees of exactness."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from gatelab.dynamics import expected_loss, finite_width_loss, train
from gatelab.ntk import analytic
from gatelab.studies.gaussian import PAPER_NAMES, Array, samples
from gatelab.studies.study import Claim, Verdict

SHARE = 0.8  # of 1 / lambda_max of the ReLU
DRAWS = 24
LEVELS = {
    "paper": "NNGP = K/m, the paper's",
    "exact": "exact NNGP",
    "finite": "finite width: kernels of drawn networks",
    "given": "given the initial outputs",
    "own": "given outputs and kernel of each network",
}


@dataclass(frozen=True, eq=False)
class Check:
    """Of one unit: the mean loss over seeds, its predictions, and the noise that theory expects of that mean."""

    unit: str
    n: int
    d: int
    width: int
    seeds: int
    measured: Array
    predicted: dict[str, Array]
    noise: Array

    def worst(self, level: str) -> float:
        """The largest relative error over all steps."""
        return float(np.abs(self.predicted[level] / self.measured - 1).max())

    def in_noise(self, level: str) -> float:
        """The largest error in units of the standard error that theory expects of the mean."""
        return float((np.abs(self.predicted[level] - self.measured) / self.noise).max())


def check_closed_form(
    units: Sequence[str], n: int, d: int, width: int, seeds: int, steps: int, tick: Callable[[], None]
) -> list[Check]:
    """Gradient descent on Gaussian samples and targets, all units with the same step."""
    X = samples(n, d, 0)
    y = np.random.default_rng([7, n]).standard_normal(n)
    kernels = analytic(list(units), X, width)
    starts = analytic(list(units), X, kind="nngp")
    lr = SHARE / float(np.linalg.eigvalsh(kernels[0].numpy())[-1])
    checks = []
    for unit, K, N in zip(units, kernels, starts, strict=True):
        run = train(unit, X, y, width, lr, steps, seeds=seeds)
        exact = expected_loss(K, y, lr=lr, steps=steps, nngp=N)
        assert exact.deviation is not None
        predicted = {
            "paper": expected_loss(K, y, width, lr, steps).loss,
            "exact": exact.loss,
            "finite": finite_width_loss(unit, X, y, width, lr, steps, seeds=range(1000, 1000 + DRAWS)).loss,
            "given": expected_loss(K, y, lr=lr, steps=steps, start=run.start).loss,
            "own": finite_width_loss(unit, X, y, width, lr, steps, seeds=seeds, given_start=True).loss,
        }
        checks.append(Check(unit, n, d, width, seeds, run.mean, predicted, exact.deviation / seeds**0.5))
        tick()
    return checks


def closed_form_claims(checks: Sequence[Check]) -> list[Claim]:
    claims = []
    for c in checks:
        good = c.worst("own") < 0.03 and c.in_noise("finite") < 3
        verdict: Verdict = "reproduced" if good else "differs"
        claims.append(
            Claim(
                f"expected loss of {PAPER_NAMES[c.unit]} at every step",
                "proposition 4.1",
                f"worst error {c.worst('paper'):.1%} (paper), {c.worst('exact'):.1%} (exact NNGP), "
                f"{c.worst('given'):.1%} given the initial outputs, {c.worst('own'):.2%} given kernels too",
                verdict,
                f"n = {c.n}, d = {c.d}, m = {c.width}. The mean over {c.seeds} seeds has by theory a standard error of "
                f"{c.noise[0] / c.predicted['exact'][0]:.1%} at step 0, and the paper's and the exact term differ by "
                f"{abs(c.predicted['paper'][0] / c.predicted['exact'][0] - 1):.2%} there: what remains is the draw of "
                f"initial outputs, and the networks' kernels, which differ from their mean; at the last step that "
                f"raises the expected loss by {c.predicted['finite'][-1] / c.predicted['exact'][-1] - 1:.1%}.",
            )
        )
    return claims


def closed_form_table(checks: Sequence[Check]) -> pd.DataFrame:
    frames = []
    for c in checks:
        columns = {
            "unit": c.unit,
            "step": np.arange(len(c.measured)),
            "measured": c.measured,
            "standard_error": c.noise,
        }
        frames.append(pd.DataFrame(columns | c.predicted))
    return pd.concat(frames, ignore_index=True)
