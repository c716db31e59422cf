"""What the runtime knows without a database or a network."""
