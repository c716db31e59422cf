"""Tests of spark_load.report."""
