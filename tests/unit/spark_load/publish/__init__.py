"""Tests of spark_load.publish."""
