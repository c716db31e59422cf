"""Tests of messaging.worker."""
