"""Screening: it clears ordinary groups by operations on whole columns; the checker reads only the other groups."""
