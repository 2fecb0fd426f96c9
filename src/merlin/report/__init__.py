"""From result rows to tables and figures: an HTML page, the same in Markdown, and LaTeX.

`content` defines what a report contains; `render` and its templates define how it looks.
"""

from merlin.report.run import write_run_report
from merlin.report.write import write_report

__all__ = ["write_report", "write_run_report"]
