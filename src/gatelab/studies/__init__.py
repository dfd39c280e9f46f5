"""The tables and figures of three papers, measured again, next to the papers' own numbers.

`all_studies()` lists them, `reproduce("scaling/fig2", folder)` runs one and writes its files, `demo(folder)` is a short
demonstration. Each folder here is a paper, except ladder/ and models/, which go beyond them. Every `Study` at the top
of a module in these folders is found.
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
