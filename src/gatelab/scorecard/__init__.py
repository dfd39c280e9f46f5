"""One unit beside another on given data: slopes, conditioning, linearisation, cost, and a recommendation.

card = gl.compare(["mlp", "glu", "gqu"], "mine.csv")     measure
card.table(), card.plot("card.png")                      a row a unit; six panels
card.recommendation.reasons, card.recommendation.caveats which unit, and why

`recommend` has the rules; they are functions of numbers alone.
"""

from gatelab.scorecard.compare import UNITS, compare
from gatelab.scorecard.evidence import Evidence, Facts, Network, Score
from gatelab.scorecard.paired import Estimate
from gatelab.scorecard.recommend import Recommendation, recommend
from gatelab.scorecard.result import Scorecard, Settings

__all__ = [
    "UNITS",
    "Estimate",
    "Evidence",
    "Facts",
    "Network",
    "Recommendation",
    "Score",
    "Scorecard",
    "Settings",
    "compare",
    "recommend",
]
