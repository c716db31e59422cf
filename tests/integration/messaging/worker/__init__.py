"""The worker: from a queue to an effect, once and in order."""
