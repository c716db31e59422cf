"""The relay: takes what is committed to the outbox and publishes it, each group in order, one leader at a time.

It calls hooks and knows no metric, span or recorder.
"""
