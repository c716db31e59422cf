"""Tests of messaging.database."""
