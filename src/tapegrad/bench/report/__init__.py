"""Reports on a run: the figures first, then tables, then a format.

`figures` works out times, ratios, winners and totals from `Results` alone, with what others have
`published` beside them; `page` arranges them in the shapes of `tables`; `term`, `markdown`, `json`
and `csv` write them; `chart` draws them. `hardware` sets runs of several machines side by side.
"""

from tapegrad.bench.report.csv import csv_text
from tapegrad.bench.report.figures import Report, report_on
from tapegrad.bench.report.json import json_text, load, save
from tapegrad.bench.report.markdown import markdown
from tapegrad.bench.report.term import render, report_text, table_text

__all__ = [
    "Report",
    "csv_text",
    "json_text",
    "load",
    "markdown",
    "render",
    "report_on",
    "report_text",
    "save",
    "table_text",
]
