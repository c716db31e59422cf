"""Exit codes of the command line."""

PARTLY, COULD_NOT, REFUSED, NEEDED, STOPPED = 1, 2, 3, 99, 130
"""In this order: the command did part of its work, or found a difference; it could not do its work; it refused, or was
used wrongly; something waits for a person; Ctrl-C ended it. 0 is success."""
