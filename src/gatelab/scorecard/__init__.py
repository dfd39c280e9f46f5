"""Units side by side on given data: error, slope, conditioning, linearization, cost, and which one to take.

card = gl.compare(["mlp", "glu", "gqu"], "mine.csv")     measure
card.recommendation, card.advice                         which unit at which width; how sure, why, at what cost
card.table(), card.score("glu"), card.plot("card.png")   the numbers, with intervals; six panels

`recommend` has the rule, a function of numbers alone; `advice.md` has all sentences.
"""

from gatelab.scorecard.comparison import UNITS, compare
from gatelab.scorecard.recommendation import FittedNetwork, Recommendation, Score, recommend
from gatelab.scorecard.result import Scorecard

__all__ = [
    "UNITS",
    "FittedNetwork",
    "Recommendation",
    "Score",
    "Scorecard",
    "compare",
    "recommend",
]
