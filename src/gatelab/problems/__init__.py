"""What is fitted: a frozen `Problem` of training and test data.

`problem` makes one from whatever is at hand: a registered name (`problems()` lists them), a formula such as
"exp(sin(3*x))" or "sin(4*x)*sin(4*y)", or a Python function of arrays. `Problem.from_arrays` and `Problem.from_file`
take measured data of any dimension and set test rows aside; `Problem.from_function` takes functions of several
variables. Formulas are read by `parse` against a whitelist and never evaluated as Python, so that one typed by a
stranger is safe to read; files are read as numbers and never unpickled.
"""

from gatelab.problems.catalogue import ProblemSpec, problems
from gatelab.problems.data import Data
from gatelab.problems.expression import Expression, parse
from gatelab.problems.problem import Problem
from gatelab.problems.registry import problem

__all__ = ["Data", "Expression", "Problem", "ProblemSpec", "parse", "problem", "problems"]
