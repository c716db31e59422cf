"""Tests of spark_load.history."""
