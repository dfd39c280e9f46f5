"""One unit beside another on given data: slopes, conditioning, linearisation, cost, and a recommendation.

card = gl.compare(["mlp", "glu", "gqu"], "mine.csv")     measure
card.table(), card.plot("card.png")                      a row a unit; six panels
card.recommendation.reasons, card.recommendation.caveats which unit, and why
card.recommendation.rivals, card.left_out                the lines for and against it; what does not count

`recommend` has the rules; they are functions of numbers alone.
"""

from gatelab.scorecard.comparison import UNITS, compare
from gatelab.scorecard.evidence import Evidence, Facts, FittedNetwork, Growth, LeftOut, Line, Score
from gatelab.scorecard.recommendation import Recommendation, Rival, recommend
from gatelab.scorecard.result import Scorecard, Settings

__all__ = [
    "UNITS",
    "Evidence",
    "Facts",
    "FittedNetwork",
    "Growth",
    "LeftOut",
    "Line",
    "Recommendation",
    "Rival",
    "Score",
    "Scorecard",
    "Settings",
    "compare",
    "recommend",
]
