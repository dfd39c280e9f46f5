"""The registered problems: formulas, Friedman's draws and measured data."""

from __future__ import annotations

from dataclasses import dataclass

from gatelab.display import one_line


@dataclass(frozen=True)
class ProblemSpec:
    """A registered problem: its name, its formula, where it lives, and how many inputs it has.

    `kind` is "formula", "friedman" (drawn by scikit-learn) or "data" (measured: no formula). The interval holds for
    every input; None where inputs differ. Friedman's and measured data are standardised unless asked otherwise.

    >>> CATALOGUE["sin4x-sin4y"].inputs, CATALOGUE["paper-1d"].expression
    (2, '1/(1+cos(pi*x)**2)')
    """

    name: str
    expression: str
    description: str
    interval: tuple[float, float] | None = (-1.0, 1.0)
    inputs: int = 1
    kind: str = "formula"

    def __repr__(self) -> str:
        return one_line(self, f"{self.name}: {self.description}")

    @property
    def standardise(self) -> bool:
        return self.kind != "formula"


def _plane(name: str, expression: str, description: str) -> ProblemSpec:
    return ProblemSpec(name, expression, description, inputs=2)


_FRIEDMAN = "sqrt(x1**2 + (x2*x3 - 1/(x2*x4))**2)", "atan((x2*x3 - 1/(x2*x4)) / x1)"

CATALOGUE = {
    spec.name: spec
    for spec in (
        ProblemSpec("paper-1d", "1/(1+cos(pi*x)**2)", "the paper's one-dimensional target, two smooth humps"),
        ProblemSpec("x2", "x**2", "a parabola, which one gated unit holds exactly"),
        ProblemSpec("x3", "x**3", "a cubic"),
        ProblemSpec("cos4x", "cos(4*x)", "a little more than one period, even"),
        ProblemSpec("sin4x", "sin(4*x)", "a little more than one period, odd"),
        ProblemSpec("sin4x2", "sin(4*(x-1)**2)", "a chirp, fast on the left and flat on the right"),
        ProblemSpec("runge1", "1/(1+x**2)", "Runge's function, wide"),
        ProblemSpec("runge9", "1/(1+9*x**2)", "Runge's function, narrower"),
        ProblemSpec("atan", "atan(x)", "a smooth step"),
        _plane("x2-y2", "x**2+y**2", "a bowl, which two gated units hold exactly"),
        _plane("x3-y3", "x**3+y**3", "a sum of cubics"),
        _plane("cos4x-cos4y", "cos(4*x)*cos(4*y)", "a product of waves, even"),
        _plane("sin4x-sin4y", "sin(4*x)*sin(4*y)", "a product of waves, odd"),
        _plane("sin4x-sin4y-r2", "sin(4*x)*sin(4*y) * (x**2+y**2)", "waves that grow outwards"),
        _plane("runge1-2d", "1/(1+x**2+y**2)", "Runge's function in the plane, wide"),
        _plane("runge9-2d", "1/(1+9*x**2+9*y**2)", "Runge's function in the plane, narrower"),
        _plane("atan-2d", "atan(x)+atan(y)", "a sum of smooth steps"),
        ProblemSpec(
            "friedman1",
            "10*sin(pi*x1*x2) + 20*(x3-0.5)**2 + 10*x4 + 5*x5",
            "Friedman's first, a sum of an interaction, a parabola and lines",
            (0.0, 1.0),
            5,
            "friedman",
        ),
        ProblemSpec("friedman2", _FRIEDMAN[0], "Friedman's second, the impedance of a circuit", None, 4, "friedman"),
        ProblemSpec("friedman3", _FRIEDMAN[1], "Friedman's third, the phase of a circuit", None, 4, "friedman"),
        ProblemSpec("airfoil", "", "UCI airfoil self-noise, 1503 measurements in a wind tunnel", None, 5, "data"),
        ProblemSpec("california", "", "California housing, 20640 districts of the census of 1990", None, 8, "data"),
    )
}


def problems() -> tuple[ProblemSpec, ...]:
    """Every registered problem.

    >>> [spec.name for spec in problems()][:4]
    ['paper-1d', 'x2', 'x3', 'cos4x']
    """
    return tuple(CATALOGUE.values())
