"""The fast path of the judge: whole columns show which groups cannot be wrong; only suspects are checked by event."""
