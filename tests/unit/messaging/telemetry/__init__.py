"""Tests of messaging.telemetry."""
