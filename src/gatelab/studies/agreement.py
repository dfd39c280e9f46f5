"""The verdict on a statement that the measured numbers either bear out or do not."""

from __future__ import annotations

import numpy as np

from gatelab.studies.definition import Verdict


def reproduced_if(agrees: bool | np.bool_) -> Verdict:
    """The verdict where there is nothing between agreeing with the paper and differing from it.

    >>> reproduced_if(True), reproduced_if(False)
    ('reproduced', 'differs')
    """
    return "reproduced" if agrees else "differs"
