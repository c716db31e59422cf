"""Tests of messaging.inbox."""
