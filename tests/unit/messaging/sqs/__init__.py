"""Tests of messaging.sqs."""
