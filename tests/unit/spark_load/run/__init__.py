"""Tests of spark_load.run."""
