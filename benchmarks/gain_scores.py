"""Numbers that may rank the eighteen units of docs/results/ladder-design.md: `python -m benchmarks.gain_scores OUT`.

κ of the tangent kernel on Gaussian rows, κ without its largest eigenvalue, the share of the mean in the second moment
of a neuron, and the slope of the error in one dimension (`--slopes`, which takes minutes). A number that OUT has is not
computed again.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer

from benchmarks.gain_units import EIGHTEEN, unit_named
from benchmarks.harness import read_record
from gatelab.data import problem
from gatelab.feedforward import AnyUnit, FunctionUnit
from gatelab.files import write_whole
from gatelab.ntk import analytic, empirical
from gatelab.scaling_laws import scaling

KAPPA, BULK, MEAN, SLOPE = "κ", "κ without its largest eigenvalue", "share of the mean", "slope in one dimension"
ROWS, INPUTS, WIDTH = 200, 100, 256
DRAWN = 2_000_000
NETWORKS = 40  # whose kernels are averaged for units without a closed form


def eigenvalues(unit: AnyUnit, seed: int) -> np.ndarray:
    """The spectrum of the expected tangent kernel on Gaussian rows, smallest first."""
    rows = np.random.default_rng(seed).standard_normal((ROWS, INPUTS))
    if not (isinstance(unit, FunctionUnit) and unit.factors):
        return np.linalg.eigvalsh(analytic(unit, rows, width=WIDTH, progress=False).matrix.numpy())
    total = np.zeros((ROWS, ROWS))
    for network in range(NETWORKS):
        made = unit.network(WIDTH, INPUTS, seed=network)
        for name, p in made.named_parameters():
            p.requires_grad_(name.isupper())  # as the analytic kernel, without biases
        total += empirical(made, torch.from_numpy(rows), 0, progress=False).matrix.numpy() / NETWORKS
    return np.linalg.eigvalsh(total)


def mean_share(unit: Any) -> float:
    """The squared mean of a neuron over its second moment, for independent standard normal maps of the input."""
    maps = torch.randn(unit.factors + 1, DRAWN, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    hidden = unit.neuron(*maps)
    return round(float(hidden.mean() ** 2 / hidden.square().mean()), 4)  # gated units have exactly 0


def slope(unit: AnyUnit) -> float:
    """The slope of the error against parameters on the first paper's target."""
    study = scaling([unit], problem("paper-1d", n=400), [2, 4, 8], 2, jobs=1, progress=False)
    return float(study.slope(unit.name, against="P").value)


def scores_of(unit: AnyUnit) -> dict[str, float]:
    """The scores of a unit that take seconds."""
    spectra = [eigenvalues(unit, seed) for seed in range(3)]
    kappa, bulk = (math.exp(np.mean([math.log(v[k] / v[0]) for v in spectra])) for k in (-1, -2))
    return {KAPPA: kappa, BULK: bulk, MEAN: mean_share(unit)}


def main(
    out: Path,
    slopes: Annotated[bool, typer.Option("--slopes", help="The slopes too, which takes minutes.")] = False,
) -> None:
    """Write the scores of all units to OUT."""
    scores: dict[str, dict[str, float]] = {name: {} for name in (KAPPA, BULK, MEAN, SLOPE)}
    scores |= read_record(out, {"scores": {}})["scores"]
    for name in EIGHTEEN:
        made = {}
        if name not in scores[MEAN]:
            made = scores_of(unit_named(name))
        if slopes and name not in scores[SLOPE]:
            made[SLOPE] = slope(unit_named(name))
        for score, value in made.items():
            scores[score][name] = value
        write_whole(out, json.dumps({"command": f"python -m benchmarks.gain_scores {out}", "scores": scores}, indent=1))
        print(name, made, flush=True)


if __name__ == "__main__":
    typer.run(main)
