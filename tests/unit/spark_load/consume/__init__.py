"""Tests of spark_load.consume."""
