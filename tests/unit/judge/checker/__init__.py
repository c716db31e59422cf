"""Tests of sluice.judge.checker."""
