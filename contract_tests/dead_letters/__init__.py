"""Promises of SQS about messages that were received too often: the DLQ, its redrive policy, and move tasks."""
