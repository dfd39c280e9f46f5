"""One unit beside another on given data: slopes, conditioning, linearisation, cost, and a recommendation.

card = gl.compare(["mlp", "glu", "gqu"], "mine.csv")     measure
card.table(), card.plot("card.png")                      a row a unit; six panels
card.recommendation.reasons, card.recommendation.caveats which unit, and why
card.recommendation.rivals, card.left_out                the lines for and against it; what does not count

`recommend` has the rules; they are functions of numbers alone.
"""

from gatelab.scorecard.compare import UNITS, compare
from gatelab.scorecard.evidence import Evidence, Facts, Growth, LeftOut, Line, Network, Score
from gatelab.scorecard.paired import Estimate
from gatelab.scorecard.recommend import Recommendation, Rival, recommend
from gatelab.scorecard.result import Scorecard, Settings

__all__ = [
    "UNITS",
    "Estimate",
    "Evidence",
    "Facts",
    "Growth",
    "LeftOut",
    "Line",
    "Network",
    "Recommendation",
    "Rival",
    "Score",
    "Scorecard",
    "Settings",
    "compare",
    "recommend",
]
