"""One file per figure of the paper: its runs, its figure, its tables, and the paper's own numbers beside ours.

`all_studies()` lists them, `reproduce("scaling/fig2", folder)` runs one and writes what it gives, `demo(folder)` is the
shortest way to see the whole.
"""

from gatelab.studies.catalogue import all_studies, study
from gatelab.studies.definition import Claim, Finding, Outcome, Request, Sketch, Stroke, Study, Verdict
from gatelab.studies.demonstration import Demo, demo
from gatelab.studies.records import done_before, read_outcome, take_record
from gatelab.studies.reproduction import Reproduction, reproduce

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
