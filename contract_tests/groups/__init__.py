"""Promises of SQS about a message group: its order, its lock, and for how long a consumer has it."""
