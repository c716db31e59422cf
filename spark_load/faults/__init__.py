"""Faults of a load test: a schedule that follows from a seed, and the injector that carries it out."""
