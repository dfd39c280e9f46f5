"""gatelab: the laboratory for feed-forward units.

    import gatelab as gl

    gl.fit("glu", "paper-1d", 50)                          train to the free-knot limit, in a fraction of a second
    gl.scaling(["mlp", "glu"], "paper-1d", range(1, 51))   how the error falls: .table() .slopes() .plot()
    gl.limit("glu", "paper-1d", 50)                        the error that theory allows
    gl.construct("gqu", "exp(sin(3*x))", 40, (0, 3))       parameters written down, with the predicted error
    gl.fit_law(P, D, L)                                    L = E + A/P^a + B/D^b: .table() .optimal(C) .plot()

What we study are units: `gl.units()` lists them, `gl.unit("glu")` finds one, `gl.Unit(activation="silu", factors=2)`
makes one, and a function of tensors or an `nn.Module` class is taken wherever a unit is; `gl.check_unit` says whether
it conforms. What they are fitted to are problems: a name (`gl.problems()`), an expression in x, a Python callable, or
`gl.Problem.from_arrays(x, y)`. Further: `gl.spline_baseline`, `gl.FeedForward` (the transformer's block form).

The flow is one way: units x problems -> solve -> scaling -> studies -> cli.
"""

from gatelab._version import __version__
from gatelab.errors import GatelabError
from gatelab.problems import Problem, problem, problems
from gatelab.scaling import Law, Scaling, corrected_slope, fit_law, limit, local_slopes, scaling, slope, spline_baseline
from gatelab.solve import Construction, Fit, Status, construct, fit
from gatelab.units import FeedForward, Unit, check_unit, unit, units

__all__ = [
    "Construction",
    "FeedForward",
    "Fit",
    "GatelabError",
    "Law",
    "Problem",
    "Scaling",
    "Status",
    "Unit",
    "__version__",
    "check_unit",
    "construct",
    "corrected_slope",
    "fit",
    "fit_law",
    "limit",
    "local_slopes",
    "problem",
    "problems",
    "scaling",
    "slope",
    "spline_baseline",
    "unit",
    "units",
]
