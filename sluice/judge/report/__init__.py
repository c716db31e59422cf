"""What is told of a verdict: a summary, JUnit for the build server, a page with charts, JSON for programs."""

from sluice.judge.folder.layout import JUNIT_FILE, PAGE_FILE, SERIES_FILE, SUMMARY_FILE, VERDICT_FILE
from sluice.judge.report.files import read_series, read_status, read_verdict, write, write_page, write_series
from sluice.judge.report.summary import markdown

__all__ = [
    "JUNIT_FILE",
    "PAGE_FILE",
    "SERIES_FILE",
    "SUMMARY_FILE",
    "VERDICT_FILE",
    "markdown",
    "read_series",
    "read_status",
    "read_verdict",
    "write",
    "write_page",
    "write_series",
]
