"""Tests of the pages in docs/, in a real browser."""
