"""What is fitted: a frozen `Problem` of training and test data.

`problem` makes one from whatever is at hand: a registered name (`problems()` lists them), a formula in x such
as "exp(sin(3*x))", or a Python function of arrays. `Problem.from_arrays` takes measured data of any dimension
and sets test rows aside; `Problem.from_function` is what `problem` calls. Formulas are read by `parse`
against a whitelist and never evaluated as Python, so that one typed by a stranger is safe to read.
"""

from gatelab.problems.expression import Expression, parse
from gatelab.problems.problem import Data, Problem
from gatelab.problems.registry import ProblemSpec, problem, problems

__all__ = ["Data", "Expression", "Problem", "ProblemSpec", "parse", "problem", "problems"]
