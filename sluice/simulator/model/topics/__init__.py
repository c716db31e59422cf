"""The model's topics: what SNS does, up to the queues it delivers to."""
