"""The fast path of the judge: columns tell which groups cannot be wrong; only suspects are checked event by event."""
