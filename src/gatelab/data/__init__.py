"""Problems: frozen training and test data.

`problem` makes one from a registered name (`problems()` lists them), a formula such as "exp(sin(3*x))" or
"sin(4*x)*sin(4*y)", or a Python function of arrays. `Problem.from_arrays` and `Problem.from_file` read measured data of
any dimension and split off test rows; `Problem.from_function` accepts functions of several variables. Formulas are
parsed against a whitelist and never evaluated as Python, so that untrusted ones are safe; files are read as numbers and
never unpickled.

For training there are labeled images (`image_data("cifar10")`) and tokenized texts (`text_data("fineweb-edu")`).
"""

from typing import TYPE_CHECKING

from gatelab.lazy import import_on_use

if TYPE_CHECKING:
    from gatelab.data.definition import Problem
    from gatelab.data.expression import Expression, parse
    from gatelab.data.images import ImageData, image_data
    from gatelab.data.named import problems
    from gatelab.data.registry import check_problem, problem
    from gatelab.data.rows import Data
    from gatelab.data.specification import ProblemSpec
    from gatelab.data.text import TextData, text_data

import_on_use(
    __name__,
    {
        "named": ("problems",),
        "specification": ("ProblemSpec",),
        "rows": ("Data",),
        "expression": ("Expression", "parse"),
        "images": ("ImageData", "image_data"),
        "definition": ("Problem",),
        "registry": ("check_problem", "problem"),
        "text": ("TextData", "text_data"),
    },
)

__all__ = [
    "Data",
    "Expression",
    "ImageData",
    "Problem",
    "ProblemSpec",
    "TextData",
    "check_problem",
    "image_data",
    "parse",
    "problem",
    "problems",
    "text_data",
]
