"""What the command line ends with."""

PARTLY, COULD_NOT, REFUSED = 1, 2, 3
"""Partly done, or a difference found; could not; wrong usage or refused. 0 is done."""
