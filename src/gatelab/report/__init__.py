"""Pages: what studies and scorecards found, as HTML that needs nothing else.

`page` makes one document out of `Section`s; `build` makes the report out of the records that `gatelab reproduce` wrote.
"""

from gatelab.report.build import build
from gatelab.report.markup import Markup, escape, prose, table
from gatelab.report.page import Section, page

__all__ = ["Markup", "Section", "build", "escape", "page", "prose", "table"]
