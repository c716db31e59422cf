"""Benchmarks of publishing: the cost of a message for the load test, beside other clients."""
