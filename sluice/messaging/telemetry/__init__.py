"""Metrics, spans and recordings, as hooks of worker and relay.

Nothing below may import it: whatever fails here harms no message.
"""
