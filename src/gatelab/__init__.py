"""gatelab: the laboratory for feed-forward units.

    import gatelab as gl

    gl.fit("glu", "paper-1d", 50)                          train to the free-knot limit, in a fraction of a second
    gl.fit("swiglu", "friedman1", 16)                      any unit, any number of inputs, to high precision
    gl.fit_many("glu", "friedman1", [8, 16], seeds=8)      many networks in one batch; device="cuda" if you have one
    gl.scaling(["mlp", "glu"], "paper-1d", range(1, 51))   how the error falls: .table() .slopes() .plot()
    gl.limit("glu", "paper-1d", 50)                        the error that theory allows
    gl.construct("gqu", "exp(sin(3*x))", 40, (0, 3))       parameters written down, with the predicted error
    gl.fit_law(P, D, L)                                    L = E + A/P^a + B/D^b: .table() .optimal(C) .plot()
    gl.ntk.spectrum(gl.ntk.analytic("glu", X)).condition   how well a unit trains on these rows; also of any nn.Module
    gl.dynamics.crossing(K_a, K_b, y, width, lr)           when the slower starter overtakes; .train measures it
    gl.train.gap(["silu", "swiglu"], model="gpt2")         the generalization gap of whole models, with a test
    gl.ladder(["gelu", "swiglu"], "enwik8")                which unit, in a language model: .table() .law() .plot()
    gl.linearize("gelu", "minimax", degree=8)              act(w.x) = Phi(w).Psi(x), polynomials with proved errors
    gl.plan_encrypted(model, rows, quality=0.999)          a model under encryption: by layer the polynomial it needs
    gl.shrink("model/", 0.8, "book.txt").save("small/")    a smaller version of a given model, with its loss
    gl.profile(model, "book.txt", tokenizer=t)             the blocks of a given model: .table() .sentences()
    gl.compare(["glu", "gqu", "relu2"], "mine.csv")        side by side on your data, with a recommendation
    gl.GatedRegressor().fit(X, y)                          scikit-learn's conventions; width and ridge by validation
    gl.GatedClassifier().fit(X, y)                         the same for classes; probabilities are calibrated
    gl.optim.LevenbergMarquardt(model).step(residuals)     any nn.Module, any residuals, high precision
    gl.load("glu.safetensors").predict(x)                  any saved object; pickles are never loaded

Units: `gl.units()` lists them, `gl.unit("glu")` finds one, and `gl.Unit(activation="silu", factors=2)` makes one. A
function of tensors or an `nn.Module` class is accepted wherever a unit is; `gl.check_unit` tests it. Problems: a name
(`gl.problems()`), an expression in x, a Python callable, or `gl.Problem.from_arrays(x, y)`. Further:
`gl.spline_baseline`, `gl.FeedForward` (the transformer's block form).

Every package is an attribute, such as `gl.data` and `gl.sweep`; `dir(gl)` lists them.
"""

from gatelab._version import __version__
from gatelab.errors import GatelabError
from gatelab.lazy import import_on_use

TYPE_CHECKING = False  # known to type checkers; importing the module typing would slow down this import
if TYPE_CHECKING:
    from gatelab import (
        anatomy,
        data,
        dynamics,
        estimators,
        feedforward,
        linearization,
        models,
        ntk,
        optim,
        plotting,
        report,
        scaling_laws,
        scorecard,
        solve,
        studies,
        sweep,
        theory,
        train,
    )
    from gatelab.anatomy import Profile, Shrunk, profile, shrink
    from gatelab.data import Problem, problem, problems
    from gatelab.estimators import GatedClassifier, GatedRegressor
    from gatelab.feedforward import FeedForward, Unit, check_unit, unit, units
    from gatelab.linearization import linearize, plan_encrypted
    from gatelab.saved import load
    from gatelab.scaling_laws import Law, Scaling, fit_law, ladder_power, scaling
    from gatelab.scaling_laws.slopes import corrected_slope, limit, local_slopes, slope, spline_baseline
    from gatelab.scorecard import compare
    from gatelab.solve import Construction, Fit, Status, construct, fit, fit_many
    from gatelab.train import Ladder, ladder

__all__ = [
    "Construction",
    "FeedForward",
    "Fit",
    "GatedClassifier",
    "GatedRegressor",
    "GatelabError",
    "Ladder",
    "Law",
    "Problem",
    "Profile",
    "Scaling",
    "Shrunk",
    "Status",
    "Unit",
    "__version__",
    "anatomy",
    "check_unit",
    "compare",
    "construct",
    "corrected_slope",
    "data",
    "dynamics",
    "estimators",
    "feedforward",
    "fit",
    "fit_law",
    "fit_many",
    "ladder",
    "ladder_power",
    "limit",
    "linearization",
    "linearize",
    "load",
    "local_slopes",
    "models",
    "ntk",
    "optim",
    "plan_encrypted",
    "plotting",
    "problem",
    "problems",
    "profile",
    "report",
    "scaling",
    "scaling_laws",
    "scorecard",
    "shrink",
    "slope",
    "solve",
    "spline_baseline",
    "studies",
    "sweep",
    "theory",
    "train",
    "unit",
    "units",
]

import_on_use(
    __name__,
    {
        "anatomy": ("Profile", "Shrunk", "profile", "shrink"),
        "estimators": ("GatedClassifier", "GatedRegressor"),
        "linearization": ("linearize", "plan_encrypted"),
        "data": ("Problem", "problem", "problems"),
        "scaling_laws": ("Law", "Scaling", "fit_law", "ladder_power", "scaling"),
        "scaling_laws.slopes": ("corrected_slope", "limit", "local_slopes", "slope", "spline_baseline"),
        "saved": ("load",),
        "scorecard": ("compare",),
        "solve": ("Construction", "Fit", "Status", "construct", "fit", "fit_many"),
        "feedforward": ("FeedForward", "Unit", "check_unit", "unit", "units"),
        "train": ("Ladder", "ladder"),
    },
)
