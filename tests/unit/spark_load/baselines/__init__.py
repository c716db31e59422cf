"""Tests of spark_load.baselines."""
