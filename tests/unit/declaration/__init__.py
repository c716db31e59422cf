"""Tests of declaration."""
