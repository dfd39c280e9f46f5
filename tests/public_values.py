"""A value of every class that gatelab's public functions give, each made once and small."""

from __future__ import annotations

import itertools
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure

import gatelab as gl
from gatelab import anatomy, dynamics, models, ntk, train
from gatelab.data import Data, ImageData, TextData, parse
from gatelab.data.images import Images
from gatelab.dynamics import expected_loss, finite_width_loss, measured_crossing, stable_step
from gatelab.feedforward import FunctionUnit, ModuleUnit, activation
from gatelab.plotting.facets import Facets
from gatelab.scaling_laws import decay, fit_ladder, fit_token_laws
from gatelab.solve.solvers.knots import solve as solve_knots
from gatelab.statistics import Interval
from gatelab.studies import Claim, Demo, Finding, Reproduction, Request, all_studies
from gatelab.studies import Outcome as StudyOutcome
from gatelab.sweep import Plan, Progress, Record, Run, RunOutcome
from gatelab.train import RateRule, matched_gap, permutation_test, recipe
from gatelab.train.ladder_runs import LadderRun

# `gatelab.linearize` is a room and, as an attribute of the package, its function.
linearize_room = import_module("gatelab.linearization")
ROOMS = (
    "gatelab",
    "gatelab.feedforward",
    "gatelab.data",
    "gatelab.solve",
    "gatelab.scaling_laws",
    "gatelab.ntk",
    "gatelab.linearization",
    "gatelab.dynamics",
    "gatelab.train",
    "gatelab.anatomy",
    "gatelab.estimators",
    "gatelab.scorecard",
    "gatelab.sweep",
    "gatelab.studies",
)
LONG = "a very long name " * 40


class Mine(torch.nn.Sequential):
    """A user's own class."""

    def __init__(self, width: int, d_in: int = 1, d_out: int = 1) -> None:
        super().__init__(torch.nn.Linear(d_in, width), torch.nn.SiLU(), torch.nn.Linear(width, d_out))


def softgate(z: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.softplus(z) * v


@cache
def public_values() -> dict[str, Any]:
    """By name; the long names are there because users have them."""
    found: dict[str, Any] = {}
    for part in (_fits, _ladder, _kernels, _trainings, _linearisations, _cards, _anatomy, _rest):
        found |= part()
    return found


def _fits() -> dict[str, Any]:
    x = np.random.default_rng(0).uniform(-1, 1, (60, 5))
    wide = gl.Problem.from_arrays(x, x[:, :2] ** 2, name=LONG, columns=tuple(f"column {i}" for i in range(5)))
    curve = gl.problem("exp(sin(3*x))", n=300)
    study = gl.scaling(["mlp", "glu"], curve, [13, 14, 15], seeds=2, jobs=1, starts=1)
    P, D = (z.ravel() for z in np.meshgrid([1e7, 1e8, 1e9], [1e9, 1e10, 1e11]))
    law = gl.fit_law(P, D, 1.69 + 406.4 / P**0.34 + 410.7 / D**0.28, bootstrap=10)
    fit = gl.fit("glu", curve, 13)
    return {
        "problem": curve,
        "problem of many inputs": wide,
        "standardised problem": gl.problem("friedman1", n=50),
        "scales": gl.problem("friedman1", n=50).scales,
        "data": Data(x, x[:, 0]),
        "expression": parse(" + ".join(f"sin({i}*x)" for i in range(60))),
        "problem spec": gl.problems()[0],
        "fit": fit,
        "fit in many dimensions": gl.fit("swiglu", wide, 2, starts=1, rounds=0, steps=3),
        "status": fit.status,
        "solution": solve_knots(gl.unit("glu"), curve, 13),
        "construction": gl.construct("gqu", "exp(sin(3*x))", 40, (0, 3)),
        "scaling": study,
        "point": study.points[0],
        "slope": study.slope("glu"),
        "law": law,
        "given law": gl.Law(E=1.69, A=406.4, a=0.34, B=410.7, b=0.28),
        "allocation": law.optimal(1e20),
    }


def _ladder() -> dict[str, Any]:
    names, sizes, seeds = (LONG, "glu"), np.geomspace(4e5, 2.5e7, 4), range(3)
    rows = [(name, size, seed) for name in names for size in sizes for seed in seeds]
    noise = np.random.default_rng(0).normal(0, 0.01, len(rows))
    losses = [0.8 + 29 * (0.9 if r[0] == "glu" else 1) * r[1] ** -0.28 + e for r, e in zip(rows, noise, strict=True)]
    columns = dict(zip(("unit", "parameters", "seed"), zip(*rows, strict=True), strict=True))
    law = fit_ladder(columns | {"loss": losses}, draws=20)
    ladder = made_up_ladder()
    return {
        "ladder": ladder,
        "run of a ladder": LadderRun(recipe("decoder", "gelu", LONG), (1e-3,), (0, 1)),
        "rule of rates": RateRule({LONG: 1e-3}, Interval(0.5, 0.4, 0.6)),
        "decay": decay(np.arange(4, 12), 1.0 / np.arange(4, 12) ** 2),
        "token laws": fit_token_laws(token_table(), draws=20, progress=False),
        "law of a ladder": law,
        "losses of a ladder": law.losses,
    }


def token_table() -> pd.DataFrame:
    """Losses on a grid of parameters and tokens that determine all constants well: fits take few steps."""
    grid = itertools.product(("gelu", "glu"), (1e6, 2e6, 4e6), (1e7, 2e7, 4e7), range(2))
    rows = [(*key, 1 + 1e6 / key[1] + 1e7 / key[2]) for key in grid]
    table = pd.DataFrame(rows, columns=["unit", "parameters", "tokens", "seed", "loss"])
    return table.assign(loss=table["loss"] + np.random.default_rng(0).normal(0, 0.003, len(table)))


def made_up_ladder() -> gl.Ladder:
    """A ladder that nobody trained: two units, three sizes, two seeds, with losses of a law."""
    records = []
    for i, unit in enumerate(("gelu", "swiglu")):
        for j, size in enumerate(("tiny", "mini", "small")):
            run = LadderRun(recipe("decoder", unit, LONG, size=size, steps=10, tokenizer="bytes"), (1e-3,), (0, 1))
            parameters = run.config.body_count(unit)
            losses = [0.8 + (29 - 3 * i) * parameters**-0.28 + 1e-3 * (s + (i + s + j) % 2) for s in range(2)]
            counts = {
                "parameters": parameters,
                "all_parameters": 2 * parameters,
                "tokens": 10,
                "flops": 10 * parameters,
            }
            metrics = {"loss": losses, "train": losses, "diverged": [None] * 2, "throughput": 1.0, "seconds": 1.0}
            records.append(Record(run.run("text"), "done", {**metrics, **counts, "together": 2}))
    return gl.Ladder("made up", tuple(records), {})


def _kernels() -> dict[str, Any]:
    X = torch.randn(30, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = X[:, 0].numpy()
    plain, gated = ntk.analytic(["mlp", "glu"], X, width=100)
    crossed = dynamics.crossing(plain, gated, y)
    a, b = (dynamics.train(u, X, y, width=32, lr=1e-3, steps=20, seeds=3) for u in ("mlp", "glu"))
    model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.GELU(), torch.nn.Linear(4, 1)).double()
    return {
        "kernel": gated,
        "empirical kernel": ntk.empirical(model, X),
        "spectrum": ntk.spectrum(gated),
        "full spectrum": ntk.spectrum(plain, full=True),
        "spectrum of an operator": ntk.spectrum(ntk.operator(model, torch.cat([X[:4], 2 * X[:4]])[:3])),
        "estimate": ntk.estimate("glu", 30, 8, 100),
        "crossing": crossed,
        "change": dynamics.Change(2.5, 0.1, "glu"),
        "early": crossed.early,
        "late": crossed.late,
        "trajectory": expected_loss(gated, y),
        "spectral": expected_loss(gated, y).spectral,
        "finite width": finite_width_loss("glu", X, y, 32, 1e-3, 5, seeds=2),
        "training": a,
        "measured crossing": measured_crossing(a, b),
        "stable step": stable_step(gated),
    }


def _trainings() -> dict[str, Any]:
    counting = TextData("counting", *(np.arange(n, dtype=np.uint16) % 16 for n in (4000, 400)), 16)
    how: dict[str, Any] = {"size": "tiny", "steps": 3, "batch": 2, "evaluations": 3}
    gap = train.gap(["silu", "swiglu"], model="gpt2", data=counting, optimizers=["adamw"], seeds=2, device="cpu", **how)
    cloud = np.random.default_rng(0).normal(size=(2, 4, 12, 2)) * 0.1 + [3.0, 0.5]
    images = Images(torch.zeros(20, 3, 8, 8, dtype=torch.uint8), torch.zeros(20, dtype=torch.int64))
    return {
        "text": counting,
        "images": images,
        "image data": ImageData("made", images, images, ("a", "b"), (0.5,) * 3, (0.2,) * 3),
        "gap": gap,
        "history": gap.histories[0],
        "recipe": gap.histories[0].recipe,
        "comparison": gap.comparisons()[0],
        "matched": matched_gap(*([run[np.argsort(-run[:, 0])] for run in group] for group in cloud)),
        "permutation test": permutation_test(*cloud),
    }


def _linearisations() -> dict[str, Any]:
    room = linearize_room
    minimax = gl.linearize("gelu", "minimax", degree=8, d=4)
    optimal = gl.linearize("gelu", "optimal", d=4, m=20)
    W, X = (torch.randn(40, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(i)) for i in (0, 1))
    return {
        "polynomial linearisation": minimax,
        "linearisation for any d": gl.linearize("swiglu", "hermite", degree=4),
        "optimal linearisation": optimal,
        "random linearisation": gl.linearize("swiglu", "maclaurin", d=4, m=16),
        "maps": optimal.features(4),
        "polynomial": minimax.polynomial,
        "bound": minimax.bound(),
        "error": minimax.error(samples=256),
        "export": room.export(minimax.polynomial),
        "cost": room.export(minimax.polynomial).cost,
        "equioscillation": room.equioscillation(minimax.polynomial, activation("gelu")),
        "published": room.find_published("puma"),
        "parameters": room.parameters_for(3),
        "encrypted plan": gl.plan_encrypted(gl.models.GPT2("tiny", "gelu"), torch.arange(160).reshape(8, 20), most=2),
        "encrypted": room.Encrypted(
            np.zeros(2), 0.1, 1e-9, 0.1, 3, 4, {"keys": 0.1, "evaluation": 0.2}, (1000, 500), room.parameters_for(3)
        ),
        "spectrum of a map": room.spectrum("gelu", 4, 20),
        "verdict": room.verdict("gelu", W, X, error=0.1),
    }


def _cards() -> dict[str, Any]:
    x = np.random.default_rng(0).uniform(-1, 1, (100, 2))
    y = x[:, 0] * x[:, 1]
    card = gl.compare(["mlp", "bilinear"], (x, y), widths=[1, 2], seeds=1, features=9, d_model=8)
    model = gl.GatedRegressor(width=1, ridge=0.0, random_state=0, starts=1, rounds=0, steps=3)
    return {
        "scorecard": card,
        "score": card.scores[0],
        "network of a card": card.networks[0],
        "recommendation": card.recommendation,
        "interval": card.networks[0].rmse,
        "regressor": model.fit(x, y),
    }


def _anatomy() -> dict[str, Any]:
    model = models.GPT2("tiny", "swiglu")
    tokens = torch.randint(64, (400,), generator=torch.Generator().manual_seed(0))
    result = gl.profile(model, tokens, tokens=240, test=80, length=16, widths=(2, 4, 8), steps=2, progress=False)
    (rows,) = anatomy.layer_rows(model, [0], tokens, tokens=240, test=80, length=16)
    fit = anatomy.fit_block(rows, "glu", 4, steps=2)
    affine = anatomy.Affine(torch.eye(3), torch.zeros(3), 0.1)
    layer = anatomy.ShrunkLayer(LONG, 8, 10, 0.1, 1.5)
    small = anatomy.Shrunk(
        model=model, tokenizer=None, method="ours", keep=0.8, layers=(layer,) * 99, measure="cosine", before=1.0,
        after=0.9, bytes_before=100, bytes_after=80, seconds=1.0,
    )  # fmt: skip
    values = {"profile": result, "block": result.blocks[0], "block rows": rows, "block fit": fit, "affine map": affine}
    terms = anatomy.Distillation(own_text=10**6)
    return {**values, "smaller model": small, "smaller layer": layer, "distillation": terms}


def _rest() -> dict[str, Any]:
    run = Run("math:hypot", {"text": LONG})
    record = Record(run, "done", {"rmse": 0.5})
    claim = Claim(LONG, 2.0, paper=1.0, rule="number", note="because")
    outcome = StudyOutcome(Figure(), {}, (claim,), ())
    study = public_scaling()
    facets = Facets("n", "rmse", title=LONG)
    return {
        "unit": gl.unit("swiglu"),
        "activation": activation("gelu"),
        "unit with a long name": gl.Unit("relu", 3, name=LONG),
        "function unit": FunctionUnit(softgate),
        "module unit": ModuleUnit(Mine),
        "check": gl.check_unit("glu")[0],
        "run": run,
        "record": record,
        "outcome": RunOutcome({"rmse": 0.5, "text": LONG}, arrays={"w": np.zeros(100)}),
        "plan": Plan(1, 2, 3, None),
        "sweep progress": Progress(record, 4, 1, 1, 0, 2.0),
        "facets": facets,
        "finding": Finding(LONG, LONG, LONG, facets),
        "claim": claim,
        "study": all_studies()[0],
        "request": Request(),
        "outcome of a study": outcome,
        "reproduction": Reproduction("scaling/fig2", (Path("a"),), outcome, 1.0),
        "demo": Demo(study, study.slopes(), study.slopes(), Path("demo.png"), (Path("demo.png"),), 1.0, LONG),
    }


def public_scaling() -> gl.Scaling:
    return gl.scaling("glu", gl.problem("x2", n=100), [2, 3], jobs=1, starts=1)
