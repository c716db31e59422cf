"""Tests of sluice.judge.report."""
