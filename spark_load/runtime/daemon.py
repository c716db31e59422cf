"""Spark's Python daemon on this machine: what tasks need is loaded once, before workers are forked from it.

Each of them would load it for itself else, and a load test has one for each publisher and consumer. pyspark wants no
threads before it forks; those that numpy and Arrow's allocator start while they are loaded see to a fork themselves.
"""

import pyspark.sql.pandas.serializers
import pyspark.worker  # noqa: F401 (what is loaded here is used in the tasks)
from pyspark.daemon import manager

if __name__ == "__main__":
    manager()
