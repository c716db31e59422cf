"""Targets of the suite: LocalStack, the simulator, any endpoint, or AWS.

A target gives clients and says what it can do. It knows nothing of promises.
"""
