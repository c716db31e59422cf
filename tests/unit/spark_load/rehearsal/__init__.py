"""Tests of what is read for a rehearsal, and how it is shown."""
