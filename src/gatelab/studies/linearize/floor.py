"""Error against the number of features, every method beside the floor that no maps of m features can pass."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from gatelab.feedforward import activation
from gatelab.linearization import Linearization, floor_curve, linearize
from gatelab.plotting import GREY, NEURON_COLOURS
from gatelab.plotting.maps import FloorPanel, Method, floor_figure
from gatelab.studies.definition import Claim, Finding, Outcome, Request, Sketch, Study, Tables, last, only, stroke

ROWS = 2000
SEED = 20_000  # of the rows and inputs that errors are measured on; no method has seen them
DRAWS = 3
STEPS = 100
# theory of the room, to all its digits: d, w_scale, m and the floor
CHECKED = ((2, 1.0, 16, 0.01054), (16, 1.0, 152, 0.418), (16, 0.25, 152, 0.0705), (16, 0.25, 3893, 0.0259))


@dataclass(frozen=True)
class Setting:
    """A law of w and x, and what is run on it: m of the best and learned maps, degrees of polynomials, m of draws."""

    name: str
    title: str
    d: int
    w_scale: float
    law: str
    best: tuple[int, ...]
    learned: tuple[int, ...]
    degrees: tuple[int, ...]
    drawn: tuple[int, ...]
    highest: float

    def rows(self, n: int, seed: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        W, X = torch.randn(2, n, self.d, generator=generator, dtype=torch.float64)
        if self.law == "sphere":
            W, X = (torch.nn.functional.normalize(rows, dim=1) for rows in (W, X))
        return W * self.w_scale, X

    @property
    def spread(self) -> float:
        """The standard deviation of w.x."""
        return self.w_scale * (1 / math.sqrt(self.d) if self.law == "sphere" else math.sqrt(self.d))


def settings(quick: bool) -> tuple[Setting, ...]:
    few = (5, 16) if quick else (1, 2, 4, 5, 8, 16, 32)
    some = (17, 152) if quick else (1, 17, 40, 80, 152, 1000, 3893)
    plane, space = ((2, 4), (2,)) if quick else ((1, 2, 4, 6, 8, 10), (1, 2, 4))
    learned = ((), ()) if quick else ((5, 8, 16), (152,))
    drawn = (80,) if quick else (80, 272, 1040, 4112)  # 16 of each are the linear part
    return (
        Setting("d2", "d = 2, w, x ~ N(0, I)", 2, 1.0, "normal", few, learned[0], plane, (), 3.0),
        Setting("d16", "d = 16, w ~ N(0, I/16), x ~ N(0, I)", 16, 0.25, "normal", some, learned[1], space, (), 3.0),
        Setting("sphere", "d = 16, w and x of length 1", 16, 1.0, "sphere", some, (), space, drawn, 1.0),
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
    chosen = settings(request.quick)
    points: list[FloorPoint] = []
    panels = []
    for i, setting in enumerate(chosen):
        found = list(measured(setting, request.quick))
        points += found
        panels.append(_panel(setting, found))
        if request.progress is not None:
            request.progress(i + 1, len(chosen))
    figure = floor_figure(panels, "GELU(w.x) as Phi(w).Psi(x): what m features can do")
    return Outcome(figure, {"errors": pd.DataFrame(map(asdict, points))}, tuple(_claims(points)), _notes())


def laws(setting: Setting) -> dict[str, Any]:
    return {"w_law": setting.law, "x_law": setting.law}


def measured(setting: Setting, quick: bool) -> Iterator[FloorPoint]:
    """A point for every method and m: RMSE over all pairs of new rows and inputs."""
    W, X = setting.rows(400 if quick else ROWS // (1 if setting.d == 2 else 2), SEED)
    exact = activation("gelu")(X @ W.T)

    def line(method: str, m: int, errors: list[float]) -> FloorPoint:
        mean = float(np.sqrt(np.mean(np.square(errors))))
        least = float(floor_curve("gelu", setting.d, [m], setting.w_scale, 1.0, **laws(setting))[0])
        return FloorPoint(setting.name, method, m, mean, min(errors), max(errors), least)

    def rmse(made: Linearization) -> float:
        return float((made.product(W, X) - exact).square().mean().sqrt())

    for m in setting.best:
        made = linearize("gelu", "optimal", d=setting.d, m=m, w_scale=setting.w_scale, **laws(setting))
        yield line("optimal", m, [rmse(made)])
    for m in setting.learned:
        made = linearize(
            "gelu", "learned", d=setting.d, m=m, w_scale=setting.w_scale, steps=1000 if setting.d < 8 else 200
        )
        yield line("learned", m, [rmse(made)])
    kinds: tuple[tuple[str, dict[str, Any]], ...] = (
        ("hermite", {"scale": setting.spread}),
        ("minimax", {"interval": 4 * setting.spread}),
        ("taylor", {}),
    )
    for degree in setting.degrees:
        for method, options in kinds:
            made = linearize("gelu", method, d=setting.d, degree=degree, **options)
            yield line(method, made.m, [rmse(made)])
    for m in setting.drawn:
        for method in ("maclaurin", "tensorsketch", "fourier"):
            errors = [rmse(linearize("gelu", method, d=setting.d, m=m, seed=s)) for s in range(2 if quick else DRAWS)]
            yield line(method, m, errors)


def _panel(setting: Setting, found: list[FloorPoint]) -> FloorPanel:
    top = min(max(p.m for p in found), 64 if setting.d == 2 else 8000)
    ms = np.unique(np.geomspace(1, top, 60).round().astype(int))
    methods = []
    for name in dict.fromkeys(p.method for p in found):
        part = sorted((p for p in found if p.method == name and p.m <= 1.5 * top), key=lambda p: p.m)
        m, rmse, low, high = (np.array([getattr(p, c) for p in part], float) for c in ("m", "rmse", "low", "high"))
        several = bool((high > low).any())
        methods.append(Method(name, m, rmse, low if several else None, high if several else None))
    floor = floor_curve("gelu", setting.d, ms.tolist(), setting.w_scale, 1.0, **laws(setting))
    return FloorPanel(setting.title, ms.astype(float), floor, tuple(methods), setting.highest)


# ---- what it says


def _claims(points: list[FloorPoint]) -> Iterator[Claim]:
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
    near, far = (pick(others, key=lambda p: p.rmse / p.floor) for pick in (min, max))
    yield Claim(
        "polynomials and random features against the floor",
        "-",
        f"{near.rmse / near.floor:.2f} to {far.rmse / far.floor:.2g} times it",
        "new",
        f"Nearest: {near.method} with {near.m} features ({near.law}); farthest: {far.method} with {far.m} ({far.law}).",
    )


def _notes() -> tuple[str, ...]:
    return (
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
