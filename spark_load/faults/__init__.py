"""Faults of a load test: a schedule that follows from a seed, and what carries it out."""
