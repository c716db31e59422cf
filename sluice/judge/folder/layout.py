"""Files and folders in the folder of a run.

    run.json        what was planned and expected, and what went wrong while it ran
    trace.parquet   the arrivals it replays, where its profile has a trace
    journals/       the events that the recorders wrote: the evidence
    history/        the events of the journals as Parquet
    earlier/        the same for the attempts before a run was resumed
    verdict.json    the verdict; summary.md, junit.xml, series.json and report.html present it

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
