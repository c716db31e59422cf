"""`sluice outbox …` and `sluice inbox …`: the tables, what is in them, and what operators do to it.

The acts themselves are operations of `sluice.messaging.outbox` and `sluice.messaging.inbox`.
"""
