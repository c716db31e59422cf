"""What a worker costs, and what it does on a queue that keeps no order."""
