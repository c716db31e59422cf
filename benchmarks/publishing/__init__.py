"""What a message costs the load test to publish, beside other clients."""
