"""Queues as the runtime uses them: receive, delete, dead letters and bringing those back, at a bounded rate.

What SQS is asked for is asked here; no database may be imported.
"""
