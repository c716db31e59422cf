"""Spark's Python daemon on this machine: it imports the tasks' modules once, before it forks the workers.

An environment variable names the modules. pyspark allows no threads before it forks; the threads that numpy and Arrow's
allocator start at their import handle a fork themselves.
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
