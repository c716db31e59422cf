"""A chaos run: real producers, relays and workers under a seeded schedule of faults, judged from their databases."""
