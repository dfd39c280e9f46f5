"""Figure 5: two samples, the plane of their two outputs, and the paths that gradient descent takes in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from gatelab.arrays import Array
from gatelab.dynamics import Crossing, crossing
from gatelab.ntk import analytic
from gatelab.plotting import Panel, Pen, look, new_figure, style
from gatelab.plotting.kernels import LossCurve, draw_losses, mark_crossing
from gatelab.studies.definition import Claim, Outcome, Request, Study, ticker
from gatelab.studies.ntk.gaussian import NO_CAPTIONS, PAPER_NAMES, WIDTH
from gatelab.studies.verdicts import reproduced_if

UNITS = ("mlp", "glu")
INPUTS, ANGLE = 2, 70.0  # of the two samples, both of length sqrt(d)
TARGETS = np.array([1.0, 0.35])  # mostly along (1, 1), the top direction, with a part across it
SHARE = 0.05  # of 1 / lambda_max of the ReLU: small, so that the path is seen
# Parts of the crossing step at which panels (a) to (d) stop.
STOPS = (0.15, 0.5, 2.0, 12.0)


@dataclass(frozen=True, eq=False)
class Path:
    """The kernel of a unit, its eigenvalues (rising) and eigenvectors, and the outputs at every step."""

    unit: str
    eigenvalues: Array
    vectors: Array
    outputs: Array

    @property
    def losses(self) -> Array:
        """Half the squared distance to the targets, at every step."""
        return 0.5 * np.sum((self.outputs - TARGETS) ** 2, axis=1)

    @property
    def detour(self) -> float:
        """The length of the path over the straight line from its start to the targets."""
        length = np.sum(np.linalg.norm(np.diff(self.outputs, axis=0), axis=1))
        return float(length / np.linalg.norm(TARGETS - self.outputs[0]))

    @property
    def condition(self) -> float:
        """The larger eigenvalue over the smaller."""
        return float(self.eigenvalues[-1] / self.eigenvalues[0])

    @property
    def along_top(self) -> float:
        """The share of the residual from 0, squared, that lies along the top direction."""
        return float((self.vectors[:, -1] @ TARGETS) ** 2 / (TARGETS @ TARGETS))

    def ends(self) -> str:
        """Both eigenvalues over the width, the larger first."""
        return f"{self.eigenvalues[-1] / WIDTH:.3f} and {self.eigenvalues[0] / WIDTH:.3f}"


def run(request: Request) -> Outcome:
    """Figure 5: the closed form of two paths, which takes no time; quick runs are the same."""
    tick = ticker(request, 2)
    kernels = analytic(list(UNITS), two_samples(), WIDTH)
    start = np.zeros(2)
    lr = SHARE / max(float(np.linalg.eigvalsh(k.numpy())[-1]) for k in kernels)
    relu, reglu = kernels
    meeting = crossing(relu, reglu, TARGETS, lr=lr, start=(start, start))
    assert meeting.step is not None
    stops = [max(1, round(part * meeting.step)) for part in STOPS]
    paths = [path(unit, k.numpy(), lr, stops[-1], start) for unit, k in zip(UNITS, kernels, strict=True)]
    tick()
    figure = draw(paths, stops, meeting)
    tick()
    notes = (
        NO_CAPTIONS,
        f"Samples of length sqrt(d), d = {INPUTS}; targets {TARGETS[0]:g} and {TARGETS[1]:g}; outputs start at 0; step "
        f"{SHARE:g} / λ_max of the ReLU for both ({lr:.2e}).",
        "What the axes of the paper's ellipse are proportional to is lost. Here they are sqrt(λ): the ellipse is where "
        "a change of the parameters of fixed length can move the outputs, a level set of e^T K^-1 e.",
    )
    return Outcome(figure, {"paths": paths_table(paths)}, claims(paths, meeting, stops), notes)


def two_samples() -> Array:
    """Two samples of length sqrt(d) at ANGLE to each other."""
    angle = np.deg2rad(ANGLE)
    return INPUTS**0.5 * np.array([[1.0, 0.0], [np.cos(angle), np.sin(angle)]])


def path(unit: str, K: Array, lr: float, steps: int, start: Array) -> Path:
    """f_t = y + (I - eta K)^t (f_0 - y)."""
    values, vectors = np.linalg.eigh(K)
    t = np.arange(steps + 1)[:, None]
    along = (1 - lr * values) ** t * (vectors.T @ (start - TARGETS))
    return Path(unit, values, vectors, TARGETS + along @ vectors.T)


def paths_table(paths: Sequence[Path]) -> pd.DataFrame:
    """A row a unit and step: both outputs and the loss."""
    frames = [
        pd.DataFrame(
            {
                "unit": p.unit,
                "step": np.arange(len(p.outputs)),
                "output_1": p.outputs[:, 0],
                "output_2": p.outputs[:, 1],
                "loss": p.losses,
            }
        )
        for p in paths
    ]
    return pd.concat(frames, ignore_index=True)


# ---- what it says


def claims(paths: Sequence[Path], meeting: Crossing, stops: Sequence[int]) -> tuple[Claim, ...]:
    """The eigenvalues, who is ahead, and how direct the paths are."""
    plain, gated = paths
    assert meeting.step is not None
    contracted = plain.eigenvalues[-1] > gated.eigenvalues[-1] and plain.eigenvalues[0] < gated.eigenvalues[0]
    early = plain.losses[stops[0]] < gated.losses[stops[0]]
    late = gated.losses[stops[2]] < plain.losses[stops[2]]
    return (
        Claim(
            "largest and smallest eigenvalue of the two-sample kernel",
            "ReLU has the larger λ_max, ReGLU the larger λ_min",
            f"λ / m: ReLU {plain.ends()}, ReGLU {gated.ends()}",
            reproduced_if(contracted),
            f"At {ANGLE:.0f}° the condition number is {plain.condition:.2f} for ReLU and {gated.condition:.2f} for "
            "ReGLU: the Gram matrix multiplies the off-diagonal entry by the cosine.",
            place="figure 5, the ellipses",
        ),
        Claim(
            "who is ahead in panels (a), (b) and in (c)",
            "ReLU early, ReGLU late",
            f"ReLU up to step {meeting.step:.1f}, ReGLU after it",
            reproduced_if(early and late and len(meeting.changes) == 1),
            f"From 0 the residual is {plain.along_top:.0%} along the top direction (squared), which ReLU shrinks by "
            f"{meeting.lr[0] * plain.eigenvalues[-1]:.1%} a step and ReGLU by "
            f"{meeting.lr[1] * gated.eigenvalues[-1]:.1%}; across it by {meeting.lr[0] * plain.eigenvalues[0]:.1%} and "
            f"{meeting.lr[1] * gated.eigenvalues[0]:.1%}.",
            place="figure 5, (a), (b) and (c)",
        ),
        Claim(
            "the path of panel (d)",
            "ReGLU's is more direct",
            f"longer than the straight line by {plain.detour - 1:.2%} (ReLU) and {gated.detour - 1:.2%} (ReGLU)",
            reproduced_if(gated.detour < plain.detour),
            "Paths bend where directions shrink at different rates; equal eigenvalues would give a straight line.",
            place="figure 5, (d)",
        ),
    )


# ---- figure


def draw(paths: Sequence[Path], stops: Sequence[int], meeting: Crossing) -> Figure:
    """Four panels of the plane, each up to a later step, and two of the losses."""
    assert meeting.step is not None
    end = len(paths[0].outputs)
    with style():
        figure = new_figure(10.4, 5.9)
        grid = figure.add_gridspec(2, 3)
        for place, (letter, stop) in enumerate(zip("abcd", stops, strict=True)):
            panel = Panel(figure.add_subplot(grid[place // 2, place % 2]))
            draw_plane(panel, paths, stop)
            leader = paths[int(np.argmin([p.losses[stop] for p in paths]))].unit
            panel.set(title=f"({letter}) step {stop}: {PAPER_NAMES[leader]} is ahead")
            if place == 0:
                panel.legend(loc="upper left", handlelength=1.8)
        panel = Panel(figure.add_subplot(grid[0, 2]))
        draw_losses_until(panel, paths, meeting, end, log=True)
        panel.set(title="all steps")
        panel = Panel(figure.add_subplot(grid[1, 2]))
        draw_losses_until(panel, paths, meeting, min(end, int(3 * meeting.step)), log=False)
        panel.set(title=f"around the crossing, step {meeting.step:.1f}")
        figure.suptitle(f"Figure 5: outputs on two samples at {ANGLE:.0f}°, gradient descent from 0 (m = {WIDTH})")
    return figure


def draw_plane(panel: Panel, paths: Sequence[Path], stop: int) -> None:
    """The plane of both outputs: the targets, and the paths up to a step."""
    top = max(p.eigenvalues[-1] for p in paths)
    for p in paths:
        shape = look(p.unit)
        # The outputs that a change of the parameters of given length can reach: semi-axes sqrt(lambda).
        turn = np.linspace(0, 2 * np.pi, 181)[:-1]
        circle = 0.55 * np.sqrt(p.eigenvalues / top) * np.column_stack((np.sin(turn), np.cos(turn)))
        reached = TARGETS[:, None] + p.vectors @ circle.T
        panel.area(reached[0], reached[1], shape.colour, alpha=0.13)
        xs = p.outputs[: stop + 1]
        panel.line(xs[:, 0], xs[:, 1], Pen(shape.colour, width=1.4), label=PAPER_NAMES[p.unit])
        panel.line(xs[-1, 0], xs[-1, 1], Pen(shape.colour, marker=shape.marker, size=6), order=5)
    panel.line(TARGETS[0], TARGETS[1], Pen("#222222", "", marker="*", size=10), label="targets", order=6)
    panel.set(xlim=(-0.1, 1.55), ylim=(-0.25, 0.95), aspect="equal")
    panel.set(xlabel="output on sample 1", ylabel="output on sample 2")


def draw_losses_until(panel: Panel, paths: Sequence[Path], meeting: Crossing, end: int, *, log: bool) -> None:
    """The losses of both units before the step `end`, and where they cross."""
    assert meeting.step is not None and meeting.loss is not None
    steps = np.arange(end, dtype=float)
    curves = [LossCurve(PAPER_NAMES[p.unit], steps, p.losses[:end], colour=look(p.unit).colour) for p in paths]
    draw_losses(panel, curves, log=log)
    mark_crossing(panel, meeting.step, meeting.loss)


STUDY = Study(
    "ntk/fig5",
    "Two samples: direction-wise training",
    "ReLU converges faster along the top direction and leads at first; ReGLU overtakes and takes a more direct path.",
    run,
    position=5,
)
