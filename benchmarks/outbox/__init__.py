"""What the outbox costs those who write to it, and how far one relay takes it."""
