"""Files and folders in the folder of a run.

    run.json        what was planned and expected, and what went wrong while it ran
    trace.parquet   the arrivals it replays, where its profile has a trace
    journals/       what the recorders wrote: the evidence
    history/        made of the journals: Parquet
    earlier/        the same of the attempts before a run was resumed
    verdict.json    and what tells of it: summary.md, junit.xml, series.json, report.html

A run's tasks add `board-N/`, one for each attempt, and `workers/` with the logs of real workers; `rehearsal.json` tells
how many of those ran, minute by minute, where the scaling policy said so.
"""

RUN_FILE = "run.json"
TRACE_FILE = "trace.parquet"
JOURNALS, HISTORY, EARLIER_HISTORY = "journals", "history", "earlier"
VERDICT_FILE = "verdict.json"
SUMMARY_FILE = "summary.md"
JUNIT_FILE = "junit.xml"
SERIES_FILE = "series.json"
PAGE_FILE = "report.html"
WORKER_LOGS = "workers"
REHEARSAL_FILE = "rehearsal.json"
LOCK_FILE = ".lock"
