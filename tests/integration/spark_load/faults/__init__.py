"""What breaks during a load test, and what its verdict makes of it."""
