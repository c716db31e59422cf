"""Spark's Python daemon on this machine: what tasks need is loaded once, before workers are forked from it.

Each of them would load it for itself else, and a load test has one for each publisher and consumer. Which modules that
are the job says, by their names in an environment variable. pyspark wants no threads before it forks; those that numpy
and Arrow's allocator start while they are loaded see to a fork themselves.
"""

import os
from importlib import import_module

import pyspark.sql.pandas.serializers
import pyspark.worker  # noqa: F401 (what is loaded here is used in the tasks)
from pyspark.daemon import manager

from spark_load.runtime.spark_session import PRELOAD_VARIABLE

if __name__ == "__main__":
    for name in filter(None, os.environ.get(PRELOAD_VARIABLE, "").split(",")):
        import_module(name)
    manager()
