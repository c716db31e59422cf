"""Metrics, spans and recordings, as hooks of worker and relay.

No other package of the runtime imports this one, so a failure here cannot harm a message.
"""
