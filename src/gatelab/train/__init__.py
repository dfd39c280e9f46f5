"""Training of models with any unit, and tests of whether units differ in how they generalize.

r = gl.train.recipe("mixer", "swiglu", "cifar10", optimizer="adamw")   a training in plain values
gl.train.train(r, folder="run")               losses during training; the same call resumes an interrupted run
gl.train.train_many([r.with_seed(s) for s in range(5)])   many seeds in one pass
gl.train.load_models("run")                   the models of a folder
gl.train.gap(["silu", "swiglu"], model="vit") runs of several units: .table() .plot() .save()
gl.train.permutation_test(runs_a, runs_b)     its p-value, by permutations of whole runs
gl.train.matched_gap(runs_a, runs_b)          the difference of the gaps at equal training loss, with an interval
gl.ladder(["gelu", "swiglu"], "enwik8")       units x sizes x seeds of a language model: .table() .law() .plot()
"""

from gatelab.train.comparison import Matched, PermutationTest, matched_gap, permutation_test
from gatelab.train.gaps import Comparison, Gap, gap, gap_recipes
from gatelab.train.history import History
from gatelab.train.ladder_plans import ladder
from gatelab.train.ladders import Ladder
from gatelab.train.loop import load_models, train, train_many
from gatelab.train.rates import RateRule
from gatelab.train.recipes import Recipe, recipe

__all__ = [
    "Comparison",
    "Gap",
    "History",
    "Ladder",
    "Matched",
    "PermutationTest",
    "RateRule",
    "Recipe",
    "gap",
    "gap_recipes",
    "ladder",
    "load_models",
    "matched_gap",
    "permutation_test",
    "recipe",
    "train",
    "train_many",
]
