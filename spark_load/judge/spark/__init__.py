"""The engine that reads a history with Spark: for load tests, and for recordings that are too large for one process."""
