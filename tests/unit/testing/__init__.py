"""Tests of the pytest plug-in."""
