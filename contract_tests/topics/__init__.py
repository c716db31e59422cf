"""Promises of SNS about a FIFO topic and its subscriptions, a file for each area."""
