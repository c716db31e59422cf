"""`sluice events …`: what producers send, compared with what consumers read.

Both are classes under `@event_type`. Here their JSON Schemas are compared; no message is made or read.
"""
