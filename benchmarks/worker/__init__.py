"""Benchmarks of a worker beside other programs that handle messages."""
