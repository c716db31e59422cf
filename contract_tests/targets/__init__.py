"""What the suite runs against: LocalStack, the simulator, any endpoint, AWS, or queues somebody brings along.

A target is clients, names, clean-up and what it can do; it knows no promise.
"""
