"""Rows on disk to tables and figures: one page, its Markdown twin, LaTeX.

`content` says what a report holds, `render` and its templates how it looks.
"""

from merlin.report.run import write_run_report
from merlin.report.write import write_report

__all__ = ["write_report", "write_run_report"]
