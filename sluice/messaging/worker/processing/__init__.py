"""The work on one message: its lease, its transaction, its handler, and the end of it: delete, release or abandon."""
