"""Limits of the work on a DLQ. The command line shows these numbers before it imports the code that does the work."""

HOLD_SECONDS = 120
"""How long received messages stay hidden if the process dies before it releases them."""
RATE_MIN, RATE_MAX = 0.1, 500
"""Messages per second. At a lower rate, received messages would be visible again before their turn."""
CLIENT, NATIVE = "client", "native"
"""The engines that bring dead letters back: this program, message by message, or a move task of SQS."""
