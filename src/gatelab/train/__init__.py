"""Training of models with any unit, and whether units differ in how they generalise.

    r = gl.train.recipe("mixer", "swiglu", "cifar10", optimiser="adamw")   a training in plain values
    gl.train.train(r, folder="run")               losses along the way; killed at any moment, the same call goes on
    gl.train.train_many([r.with_seed(s) for s in range(5)])   many seeds in one pass
    gl.train.trained("run")                       the models of a folder
    gl.train.gap(["silu", "swiglu"], model="vit") runs of several units: .table() .plot() .save()
    gl.train.energy_distance(a, b)                how far two clouds of points are apart
    gl.train.permutation_test(runs_a, runs_b)     whether that is random, exchanging whole runs
    gl.train.matched_gap(runs_a, runs_b)          the difference of the gap at equal training loss, with an interval
    gl.ladder(["gelu", "swiglu"], "enwik8")       units x sizes x seeds of a language model: .table() .law() .plot()

The gap is test loss less training loss, both measured without augmentation on equally many samples.
"""

from gatelab.train.comparison import Matched, PermutationTest, energy_distance, matched_gap, permutation_test
from gatelab.train.gaps import Comparison, Gap, gap, gap_recipes
from gatelab.train.history import History
from gatelab.train.ladder_plans import ladder
from gatelab.train.ladders import Ladder
from gatelab.train.loop import train, train_many, trained
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
    "energy_distance",
    "gap",
    "gap_recipes",
    "ladder",
    "matched_gap",
    "permutation_test",
    "recipe",
    "train",
    "train_many",
    "trained",
]
