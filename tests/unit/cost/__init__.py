"""Tests of the bill."""
