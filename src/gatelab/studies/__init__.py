"""The tables and figures of three papers, measured again: runs, figures, and the papers' own numbers beside ours.

`all_studies()` lists them, `reproduce("scaling/fig2", folder)` runs one and writes what it gives, `demo(folder)` is the
shortest way to see the whole. A folder here is a paper, ladder/ is what none has; a `Study` at the top of any module
in it is found.
"""

from gatelab.studies.claims import Claim, Verdict
from gatelab.studies.definition import Finding, Outcome, Request
from gatelab.studies.demonstration import Demo, demo
from gatelab.studies.engine import Study, all_studies, study
from gatelab.studies.records import done_before, read_outcome
from gatelab.studies.reproduction import Reproduction, reproduce, take_record

__all__ = [
    "Claim",
    "Demo",
    "Finding",
    "Outcome",
    "Reproduction",
    "Request",
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
