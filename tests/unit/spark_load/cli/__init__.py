"""Tests of spark_load.cli."""
