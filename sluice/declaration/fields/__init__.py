"""Types of the fields of an environment or a consumer: databases, networks, images, existing queues, filters."""
