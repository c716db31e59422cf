"""What fields of an environment or a consumer hold: databases, networks, images, existing queues, filters."""
