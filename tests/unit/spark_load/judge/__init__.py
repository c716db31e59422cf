"""Tests of spark_load.judge."""
