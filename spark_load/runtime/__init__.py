"""What tasks and driver share: the Spark session, a task's context, the coordinator, the deployed environment."""
