"""The judge of a history, and its reports: from the files of a run or a recording to a verdict and its page.

`sluice check` needs this package and no Spark. `spark_load/judge` runs the same engine in Spark's tasks, for histories
that are too large for one process. The judge shares no code with the runtime that it judges.
"""
