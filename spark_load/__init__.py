"""The load test: Spark publishes and consumes, everything is recorded, and the record is judged."""
