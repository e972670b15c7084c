"""Reports on a run: the figures first, then tables, then a format.

`figures` works out times, ratios and totals from `Results` alone; `page` arranges them as tables;
`term`, `markdown`, `json` and `csv` write them; `chart` draws them.
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
