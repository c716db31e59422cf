"""The simulation: traffic, a queue with the tasks that work on it, and AWS's handling of a service's policies."""
