"""How outbox and inbox connect to their databases, and what each database promises."""
