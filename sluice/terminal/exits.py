"""Exit codes of the command line."""

PARTLY, COULD_NOT, REFUSED, STOPPED = 1, 2, 3, 130
"""Partly done, or a difference found; could not; wrong usage or refused; ended by Ctrl-C. 0 is done."""
