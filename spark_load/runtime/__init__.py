"""The common base of tasks and driver: Spark session, task's context, coordinator, deployed environment."""
