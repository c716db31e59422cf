"""Spark load."""
