"""A slow consumer, for watching how its tasks are scaled."""
