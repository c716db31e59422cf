"""Tests of history."""
