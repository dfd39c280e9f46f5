"""Pages: what studies and scorecards found, as HTML that needs nothing else.

`page` makes one document out of `Section`s; `build` makes the report out of the records that `gatelab reproduce` wrote.
"""

from gatelab.report.pages import Markup, Section, escape, page, prose, table
from gatelab.report.papers import build

__all__ = ["Markup", "Section", "build", "escape", "page", "prose", "table"]
