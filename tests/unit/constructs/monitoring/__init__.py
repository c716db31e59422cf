"""Tests of `sluice.constructs.monitoring`."""
