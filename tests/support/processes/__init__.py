"""Relays, workers and tools as processes of their own, around a real endpoint."""
