"""Tests of messaging.relay."""
