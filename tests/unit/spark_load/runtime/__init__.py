"""Tests of spark_load.runtime."""
