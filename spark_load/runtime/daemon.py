"""Spark's Python daemon on this machine: what tasks need is loaded once, before workers are forked from it.

Each of them would load it for itself else, and a load test has one for each publisher and consumer. pyspark wants no
threads before it forks; those that numpy and Arrow's allocator start while they are loaded see to a fork themselves.
"""

import pyspark.sql.pandas.serializers
import pyspark.worker  # noqa: F401 (what is loaded here is used in the tasks)
from pyspark.daemon import manager

import spark_load.history.compaction
import spark_load.judge.groups
import spark_load.judge.screening.buckets
import spark_load.runtime.task_context  # noqa: F401 (what is loaded here is used in the tasks)

if __name__ == "__main__":
    manager()
