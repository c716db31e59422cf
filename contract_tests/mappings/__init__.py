"""Promises of Lambda's event source mapping of a FIFO queue; each test plays the function."""
