"""What is simulated: traffic, a queue with the tasks that work on it, and what AWS does with a service's policies."""
