"""Exit codes of the command line."""

PARTLY, COULD_NOT, REFUSED, NEEDED, STOPPED = 1, 2, 3, 99, 130
"""Partly done, or a difference found; could not; wrong usage or refused; something waits for a person;
ended by Ctrl-C. 0 is done."""
