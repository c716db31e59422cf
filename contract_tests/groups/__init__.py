"""Promises of SQS about message groups: their order, their blocking, and the visibility timeout."""
