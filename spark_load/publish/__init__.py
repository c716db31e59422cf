"""Spark's publishing tasks: groups in order, calls filled and paced, over one of two transports."""
