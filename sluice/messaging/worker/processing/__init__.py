"""The work on one message: its lease, its transaction, its handler, and how it ends."""
