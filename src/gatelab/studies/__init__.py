"""The tables and figures of three papers, measured again: runs, figures, and the papers' own numbers beside ours.

`all_studies()` lists them, `reproduce("scaling/fig2", folder)` runs one and writes what it gives, `demo(folder)` is the
shortest way to see the whole. A folder here is a paper, ladder/ is what none has; a `Study` at the top of any module
in it is found.
"""

from gatelab.studies.definition import (
    Claim,
    Finding,
    Outcome,
    Request,
    Sketch,
    Stroke,
    Study,
    Verdict,
    all_studies,
    study,
)
from gatelab.studies.demonstration import Demo, demo
from gatelab.studies.records import done_before, read_outcome
from gatelab.studies.reproduction import Reproduction, reproduce, take_record

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
    "all_studies",
    "demo",
    "done_before",
    "read_outcome",
    "reproduce",
    "study",
    "take_record",
]
