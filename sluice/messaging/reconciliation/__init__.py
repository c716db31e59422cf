"""An outbox compared with its consumers' inboxes and queues: `sluice outbox verify`, and the verdict of every hour."""
