"""A worker with its threads: leases, polls, drainers, hooks, metrics, signs of life, and how it ends."""
