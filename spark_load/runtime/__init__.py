"""The code that tasks and driver share: Spark session, a task's context, coordinator, deployed environment."""
