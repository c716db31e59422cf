"""The judge of a history, and its reports: from the files of a run or a recording to a verdict and its page.

`sluice check` needs this room and no Spark. `spark_load/judge` runs the same engine in Spark's tasks, for what is too
large for one process. It shares no code with what it judges.
"""
