"""Self-contained HTML pages of studies, scorecards and profiles.

`page` renders `Section`s as one document; `build` renders the report from the records of `gatelab reproduce`.
"""

from gatelab.report.pages import Markup, Section, escape, page, prose, table
from gatelab.report.papers import build

__all__ = ["Markup", "Section", "build", "escape", "page", "prose", "table"]
