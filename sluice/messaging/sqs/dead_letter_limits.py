"""Limits of the work on a DLQ: numbers the command line shows before it loads what does the work."""

HOLD_SECONDS = 120
"""How long what was received stays hidden when nobody gives it back, because the process died."""
RATE_MIN, RATE_MAX = 0.1, 500
"""Messages per second; slower, and what was received would be there again before its turn."""
CLIENT, NATIVE = "client", "native"
"""What brings dead letters back: this program, message by message, or a move task of SQS."""
