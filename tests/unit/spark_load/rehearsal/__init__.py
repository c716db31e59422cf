"""Tests of what is read for a rehearsal."""
