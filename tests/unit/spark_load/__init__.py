"""Tests of spark_load."""
