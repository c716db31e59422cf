"""Spark's consuming tasks: simulated consumers, or real workers as processes, and checks while they run."""
