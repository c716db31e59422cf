"""The relay publishes the committed events of the outbox, each group in its order; one relay leads, others stand by.

It calls hooks, and imports no metrics, tracing or recorder.
"""
