"""Queues as the runtime uses them: receive, delete, read dead letters and bring them back at a bounded rate.

All calls to SQS are in this package. It imports no database.
"""
