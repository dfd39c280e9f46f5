"""Section 4.1 of paper 003: GELU by Monte Carlo, whose bias and variance the paper derives and does not measure."""

from __future__ import annotations

import numpy as np
import torch

from gatelab.linearize.monte_carlo import monte_carlo, monte_carlo_variance
from gatelab.studies.study import Claim

DRAWS, SAMPLES = 4000, (16, 256)
Z = (-2.48, -1.0, 0.5, 1.55, 2.23)
SURE = 4.5  # standard errors: five means beyond it by chance in less than one of 10 000 studies


def estimates(samples: int, seed: int = 0) -> np.ndarray:
    """DRAWS estimates at every z, (draws, z)."""
    draw = torch.Generator().manual_seed(seed)
    z = torch.tensor(Z, dtype=torch.float64)
    return torch.stack([monte_carlo(z, samples, "naive", draw) for _ in range(DRAWS)]).numpy()


def monte_carlo_claims() -> tuple[Claim, Claim]:
    """Unbiased: the mean of many estimates. Consistent: their variance goes as 1/N."""
    z = torch.tensor(Z, dtype=torch.float64)
    exact = torch.nn.functional.gelu(z).numpy()
    found = {n: estimates(n) for n in SAMPLES}
    few, many = SAMPLES
    error = found[few].std(axis=0, ddof=1) / DRAWS**0.5
    off = np.abs(found[few].mean(axis=0) - exact) / error
    falls = found[few].var(axis=0, ddof=1) / found[many].var(axis=0, ddof=1)
    # A variance of so many draws is known to about sqrt(2 / draws), heavy tails aside: a quarter is far beyond chance.
    near = np.abs(np.log(falls / (many / few))) < 0.25
    theory = (found[many].var(axis=0, ddof=1) / monte_carlo_variance(z, many).numpy()).tolist()
    return (
        Claim(
            "mean of the Monte-Carlo estimates less GELU (section 4.1)",
            "0: unbiased",
            f"at most {off.max():.1f} standard errors from 0",
            "reproduced" if off.max() < SURE else "differs",
            f"{DRAWS} estimates of N = {few} at z = {', '.join(f'{v:g}' for v in Z)}; the largest standard error is "
            f"{error.max():.1e}. The estimator holds for one z: it does not factor into a map of w and a map of x.",
        ),
        Claim(
            f"what {many // few} times the samples divide the variance by (section 4.1)",
            f"{many // few}, for it is consistent",
            f"{falls.min():.1f} to {falls.max():.1f}",
            "reproduced" if near.all() else "differs",
            f"N = {few} and {many}; the variance is {min(theory):.2f} to {max(theory):.2f} times z² Φ(1 - Φ)/N.",
        ),
    )
