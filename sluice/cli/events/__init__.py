"""`sluice events …`: what producers send, compared with what consumers read.

Producers and consumers declare classes under `@event_type`. Their JSON Schemas are compared; no message is made.
"""
