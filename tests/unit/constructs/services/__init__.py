"""Tests of `sluice.constructs.services`."""
