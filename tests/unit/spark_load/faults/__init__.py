"""Tests of spark_load.faults."""
