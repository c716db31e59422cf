"""Tests of sluice.judge.reading."""
