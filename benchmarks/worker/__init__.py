"""Benchmarks of a worker: its cost, and its behaviour on a queue that keeps no order."""
