"""A chaos run in virtual time, on one thread: the product's own outbox, relay, worker and inbox on the simulator.

The same seed takes the same steps, so that a failing schedule can be cut down by trying.
"""
