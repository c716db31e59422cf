"""Benchmarks of the outbox: its cost for those who write to it, and the rate of one relay."""
