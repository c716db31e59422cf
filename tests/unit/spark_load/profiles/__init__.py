"""Tests of spark_load.profiles."""
