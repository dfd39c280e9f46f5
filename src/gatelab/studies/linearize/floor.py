"""Error against the number of features, every method beside the floor that no maps of m features can pass."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from gatelab.arrays import Array
from gatelab.feedforward import activation
from gatelab.linearization import Linearization, floor_curve, linearize
from gatelab.plotting import GREY, NEURON_COLOURS
from gatelab.plotting.maps import FloorPanel, MethodErrors, floor_figure
from gatelab.studies.definition import (
    Claim,
    Finding,
    Outcome,
    Request,
    Sketch,
    Study,
    Tables,
    last,
    only,
    stroke,
    ticker,
)

ROWS = 2000
SEED = 20_000  # of the rows and inputs that errors are measured on; no method has seen them
DRAWS = 3
# What theory has, to all its digits: d, w_scale, m and the floor.
CHECKED = ((2, 1.0, 16, 0.01054), (16, 1.0, 152, 0.418), (16, 0.25, 152, 0.0705), (16, 0.25, 3893, 0.0259))


@dataclass(frozen=True)
class Setting:
    """A distribution of w and x, and what is run on it.

    `law` names the distribution, "normal" or "sphere"; `best` and `learned` are numbers of features of the best and of
    learned maps, `degrees` those of polynomials, `drawn` numbers of random features. The figure ends at `highest`.
    """

    name: str
    title: str
    d: int
    w_scale: float
    law: str
    best: tuple[int, ...]
    degrees: tuple[int, ...]
    highest: float
    learned: tuple[int, ...] = ()
    drawn: tuple[int, ...] = ()

    def rows(self, n: int, seed: int) -> tuple[Tensor, Tensor]:
        """n rows w and n inputs x, (n, d) each."""
        generator = torch.Generator().manual_seed(seed)
        W, X = torch.randn(2, n, self.d, generator=generator, dtype=torch.float64)
        if self.law == "sphere":
            W, X = (torch.nn.functional.normalize(rows, dim=1) for rows in (W, X))
        return W * self.w_scale, X

    @property
    def spread(self) -> float:
        """The standard deviation of w.x."""
        if self.law == "sphere":
            return self.w_scale * (1 / math.sqrt(self.d))
        return self.w_scale * math.sqrt(self.d)

    @property
    def distributions(self) -> dict[str, Any]:
        """The distribution, as `linearize` and `floor_curve` take it."""
        return {"w_distribution": self.law, "x_distribution": self.law}

    def floor(self, ms: Sequence[int]) -> Array:
        """The least error that maps of so many features can have."""
        return floor_curve("gelu", self.d, list(ms), self.w_scale, 1.0, **self.distributions)


PLANE = Setting(
    "d2",
    "d = 2, w, x ~ N(0, I)",
    d=2,
    w_scale=1.0,
    law="normal",
    best=(1, 2, 4, 5, 8, 16, 32),
    learned=(5, 8, 16),
    degrees=(1, 2, 4, 6, 8, 10),
    highest=3.0,
)
SPACE = Setting(
    "d16",
    "d = 16, w ~ N(0, I/16), x ~ N(0, I)",
    d=16,
    w_scale=0.25,
    law="normal",
    best=(1, 17, 40, 80, 152, 1000, 3893),
    learned=(152,),
    degrees=(1, 2, 4),
    highest=3.0,
)
SPHERE = Setting(
    "sphere",
    "d = 16, w and x of length 1",
    d=16,
    w_scale=1.0,
    law="sphere",
    best=(1, 17, 40, 80, 152, 1000, 3893),
    degrees=(1, 2, 4),
    drawn=(80, 272, 1040, 4112),  # 16 of each are the linear part
    highest=1.0,
)
QUICK = (
    replace(PLANE, best=(5, 16), learned=(), degrees=(2, 4)),
    replace(SPACE, best=(17, 152), learned=(), degrees=(2,)),
    replace(SPHERE, best=(17, 152), degrees=(2,), drawn=(80,)),
)


@dataclass(frozen=True)
class FloorPoint:
    """One method at one m; low and high span its draws."""

    law: str
    method: str
    m: int
    rmse: float
    low: float
    high: float
    floor: float


def run(request: Request) -> Outcome:
    """Every method on three distributions of w and x."""
    settings = (PLANE, SPACE, SPHERE)
    if request.quick:
        settings = QUICK
    tick = ticker(request, len(settings))
    points: list[FloorPoint] = []
    panels = []
    for setting in settings:
        of_setting = list(measured(setting, request.quick))
        points += of_setting
        panels.append(panel(setting, of_setting))
        tick()
    figure = floor_figure(panels, "GELU(w.x) as Phi(w).Psi(x): what m features can do")
    return Outcome(figure, {"errors": pd.DataFrame(map(asdict, points))}, tuple(claims(points)), NOTES)


def measured(setting: Setting, quick: bool) -> Iterator[FloorPoint]:
    """A point for every method and m: RMSE over all pairs of new rows and inputs."""
    count, draws = ROWS, DRAWS
    if setting.d > 2:
        count = ROWS // 2
    if quick:
        count, draws = 400, 2
    W, X = setting.rows(count, SEED)
    exact = activation("gelu")(X @ W.T)

    def point(method: str, m: int, maps: Iterable[Linearization]) -> FloorPoint:
        errors = [float((each.product(W, X) - exact).square().mean().sqrt()) for each in maps]
        return FloorPoint(
            setting.name,
            method,
            m,
            rmse=float(np.sqrt(np.mean(np.square(errors)))),
            low=min(errors),
            high=max(errors),
            floor=float(setting.floor([m])[0]),
        )

    for m in setting.best:
        maps = linearize("gelu", "optimal", d=setting.d, m=m, w_scale=setting.w_scale, **setting.distributions)
        yield point("optimal", m, [maps])
    for m in setting.learned:
        steps = 1000 if setting.d < 8 else 200
        maps = linearize("gelu", "learned", d=setting.d, m=m, w_scale=setting.w_scale, steps=steps)
        yield point("learned", m, [maps])
    kinds: dict[str, dict[str, Any]] = {
        "hermite": {"scale": setting.spread},
        "minimax": {"interval": 4 * setting.spread},
        "taylor": {},
    }
    for degree in setting.degrees:
        for method, options in kinds.items():
            maps = linearize("gelu", method, d=setting.d, degree=degree, **options)
            yield point(method, maps.m, [maps])
    for m in setting.drawn:
        for method in ("maclaurin", "tensorsketch", "fourier"):
            yield point(method, m, (linearize("gelu", method, d=setting.d, m=m, seed=seed) for seed in range(draws)))


def panel(setting: Setting, points: Sequence[FloorPoint]) -> FloorPanel:
    """All methods on one distribution, and the floor under them."""
    top = min(max(p.m for p in points), 64 if setting.d == 2 else 8000)
    ms = np.unique(np.geomspace(1, top, 60).round().astype(int))
    methods = []
    for name in dict.fromkeys(p.method for p in points):
        part = sorted((p for p in points if p.method == name and p.m <= 1.5 * top), key=lambda p: p.m)
        m, rmse, low, high = (np.array([getattr(p, c) for p in part], float) for c in ("m", "rmse", "low", "high"))
        if (high > low).any():
            methods.append(MethodErrors(name, m, rmse, low, high))
        else:
            methods.append(MethodErrors(name, m, rmse, None, None))
    return FloorPanel(setting.title, ms.astype(float), setting.floor(ms.tolist()), tuple(methods), setting.highest)


# ---- what it says


def claims(points: Sequence[FloorPoint]) -> Iterator[Claim]:
    """The floor to the digits of theory, the best maps on it, and all other methods against it."""
    for d, scale, m, expected in CHECKED:
        ours = float(floor_curve("gelu", d, [m], scale)[0])
        agrees = "agrees" if abs(ours / expected - 1) < 0.005 else "DISAGREES"
        what = f"the floor at d = {d}, w ~ N(0, {scale:g}^2 I), m = {m}"
        yield Claim(what, "-", f"{ours:.4g}", "new", f"Expected {expected:g} from theory: {agrees} to its digits.")
    best = max((p for p in points if p.method == "optimal"), key=lambda p: abs(p.rmse / p.floor - 1))
    yield Claim(
        "the best maps reach the floor",
        "-",
        f"within {abs(best.rmse / best.floor - 1):.1%} on new rows and inputs",
        "new",
        f"Farthest at m = {best.m} ({best.law}): {best.rmse:.4g} against {best.floor:.4g}; "
        "what is left is chance in the rows.",
    )
    others = [p for p in points if p.method not in ("optimal", "learned") and p.floor > 0]
    nearest, farthest = (pick(others, key=lambda p: p.rmse / p.floor) for pick in (min, max))
    yield Claim(
        "polynomials and random features against the floor",
        "-",
        f"{nearest.rmse / nearest.floor:.2f} to {farthest.rmse / farthest.floor:.2g} times it",
        "new",
        f"Nearest: {nearest.method} with {nearest.m} features ({nearest.law}); farthest: {farthest.method} with "
        f"{farthest.m} ({farthest.law}).",
    )


NOTES = (
    f"Errors are over all pairs of {ROWS} new rows and as many inputs, half of that in d = 16, 400 in a quick run.",
    "Features of polynomials are symmetric monomials. Random features keep the linear part exactly; strokes span "
    f"{DRAWS} draws. On Gaussian rows |w.x| has no bound and they are not drawn.",
    "Taylor and minimax polynomials leave their interval on Gaussian rows; triangles mark errors above the axis.",
)


def findings(tables: Tables) -> tuple[Finding, ...]:
    """The floor at one number of features in 16 inputs, and who reaches it."""
    rows, features = only(tables["errors"], law="d16"), 152
    best = only(rows, method="optimal")
    row = last(best, m=features)
    other = only(rows, method="hermite")
    near = last(other, m=min(other["m"], key=lambda m: abs(m - features)))
    sentence = (
        f"No {features} features Φ(w)·Ψ(x), whatever they are, come nearer to GELU(w·x) than an RMSE of "
        f"{row['floor']:.3g}. The best maps have {row['rmse']:.3g} on new rows and inputs, the Hermite series of "
        f"{near['m']} features {near['rmse']:.3g}."
    )
    sizes = "d = 16 inputs, w ~ N(0, I/16), x ~ N(0, I)."
    strokes = (
        stroke("floor", best, "m", "floor", GREY, dashed=True),
        stroke("best maps", best, "m", "rmse", NEURON_COLOURS[0], marks=True),
        stroke("Hermite", other, "m", "rmse", NEURON_COLOURS[1], marks=True),
    )
    return (Finding("A floor under every method", sentence, sizes, Sketch("features m", "RMSE", strokes)),)


STUDY = Study(
    "linearize/floor",
    "What m features can do",
    "The paper has no bound to hold its maps against; here every method stands beside the least error possible.",
    run,
    findings=findings,
    position=6,
    beyond=True,
)
