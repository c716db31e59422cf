"""Tests of scaling."""
