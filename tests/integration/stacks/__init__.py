"""Tests of stacks."""
