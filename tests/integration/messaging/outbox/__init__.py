"""The outbox and the relay with real databases."""
