"""Tests of spark_load.plan."""
