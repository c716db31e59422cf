"""Tests of sluice.judge."""
