"""Targets of the suite: LocalStack, the simulator, any endpoint, or AWS.

A target is clients, names, clean-up and what it can do; it knows no promise.
"""
