"""Tests of `spark_load.judge` and of the commands that judge, on Spark."""
