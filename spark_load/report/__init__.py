"""What is told of a verdict: a summary, JUnit for the build server, a page with charts, JSON for programs."""

from spark_load.report.files import (
    JUNIT_FILE,
    PAGE_FILE,
    SERIES_FILE,
    SUMMARY_FILE,
    VERDICT_FILE,
    read_series,
    read_verdict,
    replace,
    write,
    write_page,
    write_series,
)
from spark_load.report.summary import markdown, show

__all__ = [
    "JUNIT_FILE",
    "PAGE_FILE",
    "SERIES_FILE",
    "SUMMARY_FILE",
    "VERDICT_FILE",
    "markdown",
    "read_series",
    "read_verdict",
    "replace",
    "show",
    "write",
    "write_page",
    "write_series",
]
