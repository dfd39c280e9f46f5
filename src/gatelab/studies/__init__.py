"""One file per figure of the paper: its runs, its figure, its tables, and the paper's own numbers beside ours.

`studies()` lists them, `reproduce("scaling/fig2", folder)` runs one and writes what it gives, `demo(folder)` is the
shortest way to see the whole.
"""

from gatelab.studies.demo import Demo, demo
from gatelab.studies.finding import Finding, Sketch, Stroke
from gatelab.studies.kept import done_before, read_outcome, take_record
from gatelab.studies.registry import studies, study
from gatelab.studies.reproduce import Reproduction, reproduce
from gatelab.studies.study import Claim, Outcome, Request, Study, Verdict

__all__ = [
    "Claim",
    "Demo",
    "Finding",
    "Outcome",
    "Reproduction",
    "Request",
    "Sketch",
    "Stroke",
    "Study",
    "Verdict",
    "demo",
    "done_before",
    "read_outcome",
    "reproduce",
    "studies",
    "study",
    "take_record",
]
