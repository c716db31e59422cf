"""Tests of saboteurs."""
